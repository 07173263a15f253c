# ruff: noqa: E501
"""Rewrites of loops: every rule by its text (tests/golden/loop_rewrites/) and by its
values; and that the time of all rewrites of loops is linear in the size of the loop.

`kept` names what a rule must leave alone.
"""

from __future__ import annotations

from collections.abc import Callable
from cProfile import Profile

import pytest

from ir import Builder, Carry, Const, Input, Program, Scan, Seq, Size, Stack, Type, Value, verify
from ir.passes import (
    PIPELINE,
    fuse_loops,
    hoist_from_scan,
    invariant_ports,
    known_addresses,
    known_trips,
    last_k_steps,
    last_steps,
    split_loops,
    sums_in_loops,
    unroll_loops,
)
from ir.passes.loops import invariant_ports as invariant
from ir.rewrite import in_order
from ir.types import F32, I64
from tests.ir.test_ir_random import check, program

CASES = {
    "known_trips": (known_trips, """
program p(%x: f32[5,B] arg "x", %h0: f32[B] arg "h", %n: i64[] arg "n", %l: f32[] arg "l") {
  %zero = full(value=0.0, shape=[1], dtype=f32)  : f32[1]
  %one = full(value=1, dtype=i64)  : i64[]
  %nine = full(value=9, dtype=i64)  : i64[]
  %none = full(value=0, dtype=i64)  : i64[]
  %five = full(value=4.5, shape=[1], dtype=f32)  : f32[1]
  %four = full(value=4.0, shape=[1], dtype=f32)  : f32[1]
  %yes = full(value=True, dtype=bool)  : bool[]
  while %t as n1 {
    go %yes then %p
    const %four1 = %four  : f32[1]
    carry %i = %zero then %i2 last %iT  : f32[1]
    carry %h = %h0 then %h2  : f32[B]
    stack %ys = %h2 axis 1  : f32[B,n1]
    body
      %h2 = tanh(%h)  : f32[B]
      %i2 = scale(%i, bias=1.0)  : f32[1]
      %q = less_than(%i2, %four1)  : bool[1]
      %p = reshape(%q, shape=[])  : bool[]
  }
  %turned = transpose(%ys, perm=[1, 0])  : f32[n1,B]
  %length = size(n=n1)  : i64[]
  %starts = greater_equal(%nine, %one)  : bool[]
  while %r as n2 {
    go %starts then %both
    const %x1 = %x  : f32[5,B]
    const %three = %one  : i64[]
    const %l1 = %l  : f32[]
    carry %j = %one then %j2  : i64[]
    carry %g = %h0 then %g2 last %gT  : f32[B]
    body
      %xj = dynamic_index(%x1, %j, axis=0)  : f32[B]
      %g2 = add(%g, %xj)  : f32[B]
      %j2 = add(%j, %three)  : i64[]
      %top = full(value=5, dtype=i64)  : i64[]
      %in = greater_than(%top, %j2)  : bool[]
      %s = sum(%g2)  : f32[]
      %low = less_than(%s, %l1)  : bool[]
      %both = logical_and(%in, %low)  : bool[]
  }
  %long = size(n=B)  : i64[]
  %any = less_than(%none, %long)  : bool[]
  while %u as n3 {
    go %any then %more
    const %step = %one  : i64[]
    const %long1 = %long  : i64[]
    carry %k = %none then %k2  : i64[]
    carry %f = %h0 then %f2 last %fT  : f32[B]
    body
      %f2 = neg(%f)  : f32[B]
      %k2 = add(%k, %step)  : i64[]
      %more = less_than(%k2, %long1)  : bool[]
  }
  while %kept < 7 as n4 {
    go %yes then %m
    const %five1 = %five  : f32[1]
    const %n1 = %n  : i64[]
    carry %i4 = %zero then %i5  : f32[1]
    carry %i6 = %n then %i7  : i64[]
    carry %e = %h0 then %e2 last %eT  : f32[B]
    body
      %e2 = neg(%e)  : f32[B]
      %i5 = scale(%i4, bias=0.5)  : f32[1]
      %c = less_than(%i5, %five1)  : bool[1]
      %c1 = reshape(%c, shape=[])  : bool[]
      %i7 = scale(%i6, bias=1.0)  : i64[]
      %d = less_than(%i7, %n1)  : bool[]
      %m = logical_and(%c1, %d)  : bool[]
  }
  return %turned, %iT, %length, %gT, %fT, %eT
}"""),
    "seq_of_equal_steps": (invariant_ports, """
program p(%x: f32[B,T] arg "x", %g: f32[B] arg "g", %s: f32[] arg "s") {
  %a = reshape(%g, shape=[B, 1])  : f32[B,1]
  %b = expand(%a, shape=[B, T])  : f32[B,T]
  %c = slice(%b, axis=1, start=T-1, length=T, step=-1)  : f32[B,T]
  %d = transpose(%b, perm=[1, 0])  : f32[T,B]
  %e = expand(%s, shape=[T, B])  : f32[T,B]
  %f = full(value=0.5, shape=[T, B], dtype=f32)  : f32[T,B]
  %k = expand(%a, shape=[B, 3])  : f32[B,3]
  scan %t < T {
    const %f1 = %f  : f32[T,B]
    seq   %bt = %b[:, T-1-t]  : f32[B]
    seq   %ct = %c[:, t]  : f32[B]
    seq   %dt = %d[t]  : f32[B]
    seq   %et = %e[t]  : f32[B]
    seq   %ft = %f[t]  : f32[B]
    seq   %kept = %x[:, t]  : f32[B]
    stack %ys = %5 axis 0  : f32[T,B]
    stack %zs = %zT axis 0  : f32[T,B]
    body
      %1 = add(%bt, %ct)  : f32[B]
      %2 = add(%1, %dt)  : f32[B]
      %3 = add(%2, %et)  : f32[B]
      %4 = add(%3, %ft)  : f32[B]
      %5 = add(%4, %kept)  : f32[B]
      scan %r < T {
        seq   %fr = %f1[r]  : f32[B]
        carry %z = %5 then %z2 last %zT  : f32[B]
        body
          %z2 = add(%z, %fr)  : f32[B]
      }
  }
  scan %u < B {
    seq   %kept2 = %k[u]  : f32[3]
    stack %us = %u2 axis 0  : f32[B,3]
    body
      %u2 = neg(%kept2)  : f32[3]
  }
  return %ys, %zs, %us
}"""),
    "stack_of_equal_steps": (invariant_ports, """
program p(%x: f32[B,T] arg "x", %g: f32[B,3] arg "g", %p: bool[] arg "p") {
  scan %t < T {
    const %g1 = %g  : f32[B,3]
    seq   %xt = %x[:, t]  : f32[B]
    stack %as = %g1 axis 0  : f32[T,B,3]
    stack %bs = %g1 axis 2  : f32[B,3,T]
    stack %cs = %one axis 1  : f32[B,T]
    stack %kept = %y axis 0  : f32[T,B]
    body
      %one = full(value=1.0, shape=[B], dtype=f32)  : f32[B]
      %y = add(%xt, %one)  : f32[B]
  }
  while %r < 5 as n1 {
    go %p then %q
    const %p1 = %p  : bool[]
    const %g2 = %g  : f32[B,3]
    stack %ws = %g2 axis 1  : f32[B,n1,3]
    body
      %two = full(value=2, dtype=i64)  : i64[]
      %q = less_than(%r, %two)  : bool[]
  }
  return %as, %bs, %cs, %kept, %ws
}"""),
    "last_of_number": (invariant_ports, """
program p(%h0: f32[B] arg "h") {
  scan %t < 3 {
    carry %h = %h0 then %h2  : f32[B]
    last  %a = %one  : f32[B]
    last  %kept = %h2  : f32[B]
    body
      %one = full(value=1.0, shape=[B], dtype=f32)  : f32[B]
      %h2 = add(%h, %one)  : f32[B]
  }
  return %a, %kept
}"""),
    "last_of_seq": (invariant_ports, """
program p(%x: f32[5,B] arg "x", %p: bool[] arg "p") {
  %yes = full(value=True, dtype=bool)  : bool[]
  scan %t < 3 {
    seq   %xt = %x[t+1]  : f32[B]
    seq   %xr = %x[4-2*t]  : f32[B]
    last  %a = %xt  : f32[B]
    last  %b = %xr  : f32[B]
    body
  }
  while %r < 3 as n1 {
    go %yes then %p1
    const %p1 = %p  : bool[]
    seq   %xt2 = %x[r]  : f32[B]
    last  %kept = %xt2  : f32[B]
    body
  }
  return %a, %b, %kept
}"""),
    "last_steps": (last_steps, """
program p(%x: f32[B,T] arg "x", %z: f32[5,B] arg "z", %h0: f32[B] arg "h", %p: bool[] arg "p") {
  %yes = full(value=True, dtype=bool)  : bool[]
  scan %t < 5 {
    seq   %zt = %z[t]  : f32[B]
    carry %h = %h0 then %h2  : f32[B]
    stack %as = %h2 axis 1  : f32[B,5]
    stack %bs = %y axis 0  : f32[5,B]
    stack %kept = %y axis 0  : f32[5,B]
    stack %kept2 = %h2 axis 0  : f32[5,B]
    body
      %h2 = add(%h, %zt)  : f32[B]
      %y = neg(%h2)  : f32[B]
  }
  %a = index(%as, axis=1, index=4)  : f32[B]
  %a2 = slice(%as, axis=-1, start=4, length=1)  : f32[B,1]
  %b = slice(%bs, axis=0, start=4, length=1, step=-1)  : f32[1,B]
  %k = index(%kept, axis=0, index=3)  : f32[B]
  %k2 = index(%kept2, axis=0, index=4)  : f32[B]
  scan %u < T {
    const %kept4 = %kept2  : f32[5,B]
    seq   %xt = %x[:, u]  : f32[B]
    carry %g = %h0 then %g2 last %gT  : f32[B]
    body
      %s = sum(%kept4, axes=[0])  : f32[B]
      %i = add(%xt, %s)  : f32[B]
      %g2 = add(%g, %i)  : f32[B]
  }
  while %r < 4 as n1 {
    go %yes then %q
    carry %w = %h0 then %w2  : f32[B]
    stack %ws = %w2 axis 0  : f32[n1,B]
    body
      %two = full(value=2, dtype=i64)  : i64[]
      %w2 = neg(%w)  : f32[B]
      %q = less_than(%r, %two)  : bool[]
  }
  %l = index(%ws, axis=0, index=n1-1)  : f32[B]
  return %a, %a2, %b, %k, %k2, %gT, %l
}"""),
    "last_k_steps": (last_k_steps, """
program p(%x: f32[B,T+3] arg "x", %n: f32[T,B] arg "n", %z: f32[9,B] arg "z", %h0: f32[B] arg "h") {
  scan %t < T+3 {
    seq   %xt = %x[:, t]  : f32[B]
    carry %h = %h0 then %h2  : f32[B]
    stack %as = %h2 axis 1  : f32[B,T+3]
    stack %bs = %h axis 0  : f32[T+3,B]
    stack %cs = %h axis 0  : f32[T+3,B]
    stack %kept = %h axis 0  : f32[T+3,B]
    stack %kept2 = %h2 axis 0  : f32[T+3,B]
    body
      %h2 = add(%h, %xt)  : f32[B]
  }
  scan %r < T {
    seq   %nt = %n[r]  : f32[B]
    stack %kept4 = %m axis 0  : f32[T,B]
    body
      %m = neg(%nt)  : f32[B]
  }
  %l = slice(%kept4, axis=0, start=T, length=0)  : f32[0,B]
  %a = slice(%as, axis=1, start=T+2, length=3, step=-1)  : f32[B,3]
  %b = index(%bs, axis=0, index=T+2)  : f32[B]
  %b2 = slice(%bs, axis=-2, start=T+1, length=2)  : f32[2,B]
  %c = slice(%cs, axis=0, start=T, length=2, step=2)  : f32[2,B]
  %k = slice(%kept, axis=0, start=0, length=3)  : f32[3,B]
  scan %u < 9 {
    seq   %zt = %z[u]  : f32[B]
    carry %g = %h0 then %g2  : f32[B]
    stack %ds = %p axis 0  : bool[9,B]
    stack %kept3 = %g2 axis 0  : f32[9,B]
    body
      %g2 = neg(%g)  : f32[B]
      %p = less_than(%g2, %zt)  : bool[B]
  }
  %d = index(%ds, axis=0, index=7)  : bool[B]
  %k3 = slice(%kept3, axis=0, start=3, length=6)  : f32[6,B]
  return %a, %b, %b2, %c, %k, %kept2, %d, %k3, %l
}"""),
    "last_k_steps_of_while": (last_k_steps, """
program p(%x: f32[B,T] arg "x", %h0: f32[B] arg "h", %n: i64[] arg "n") {
  %zero = full(value=0, dtype=i64)  : i64[]
  %one = full(value=1, dtype=i64)  : i64[]
  %three = full(value=3, dtype=i64)  : i64[]
  %starts = less_than(%zero, %n)  : bool[]
  while %t < T as n1 {
    go    %starts then %more
    const %n1 = %n  : i64[]
    seq   %xt = %x[:, t]  : f32[B]
    carry %h = %h0 then %h2  : f32[B]
    stack %as = %h2 axis 1  : f32[B,n1]
    stack %bs = %h axis 0  : f32[n1,B]
    stack %cs = %h2 axis 0  : f32[n1,B]
    stack %es = %h2 axis 0  : f32[n1,B]
    stack %kept = %h2 axis 0  : f32[n1,B]
    body
      %h2 = add(%h, %xt)  : f32[B]
      %more = less_than(%t, %n1)  : bool[]
  }
  %count = size(n=n1)  : i64[]
  %back = subtract(%count, %three)  : i64[]
  %start = maximum(%back, %zero)  : i64[]
  %gap = subtract(%count, %start)  : i64[]
  %any = greater_than(%gap, %zero)  : bool[]
  while %i < 3 as n2 {
    go    %any then %again
    const %limit = %gap  : i64[]
    const %step = %one  : i64[]
    body
      %i2 = add(%i, %step)  : i64[]
      %again = less_than(%i2, %limit)  : bool[]
  }
  %a = dynamic_slice(%as, %start, axis=1, length=n2)  : f32[B,n2]
  %front = reshape(%h0, shape=[1, B])  : f32[1,B]
  %two = concat(%front, %front, axis=0)  : f32[2,B]
  %joined = concat(%two, %bs, axis=0)  : f32[n1+2,B]
  %b = dynamic_index(%joined, %count, axis=0)  : f32[B]
  %b2 = slice(%joined, axis=0, start=n1, length=2)  : f32[2,B]
  %whole = concat(%front, %cs, axis=0)  : f32[n1+1,B]
  %turned = transpose(%whole, perm=[1, 0])  : f32[B,n1+1]
  %c = index(%turned, axis=1, index=n1)  : f32[B]
  %two1 = full(value=2, dtype=i64)  : i64[]
  %enough = greater_equal(%count, %two1)  : bool[]
  cond %enough {
    const %e1 = %es  : f32[n1,B]
    const %h1 = %h0  : f32[B]
    const %f1 = %enough  : bool[]
    join  %e = %e2 else %h1  : f32[B]
    then
      cond %f1 {
        const %e3 = %e1  : f32[n1,B]
        const %h3 = %h1  : f32[B]
        join  %e2 = %e4 else %h3  : f32[B]
        then
          %e4 = index(%e3, axis=0, index=n1-2)  : f32[B]
        else
      }
    else
  }
  %k = slice(%kept, axis=0, start=0, length=n1)  : f32[n1,B]
  return %a, %b, %b2, %c, %e, %k
}"""),
    "last_k_steps_before_an_exit": (last_k_steps, """
program p(%x: f32[6,B] arg "x", %h0: f32[B] arg "h", %n: i64[] arg "n") {
  %zero = full(value=0, dtype=i64)  : i64[]
  %one = full(value=1, dtype=i64)  : i64[]
  %two = full(value=2, dtype=i64)  : i64[]
  %yes = full(value=True, dtype=bool)  : bool[]
  while %t < 6 as n1 {
    go    %yes then %more
    const %n1 = %n  : i64[]
    seq   %xt = %x[t]  : f32[B]
    stack %ys = %y axis 0  : f32[n1,B]
    stack %kept = %y axis 0  : f32[n1,B]
    last  %missed = %miss  : i64[]
    body
      %y = neg(%xt)  : f32[B]
      %exit = less_equal(%n1, %t)  : bool[]
      %more = logical_not(%exit)  : bool[]
      %miss = cast(%exit, dtype=i64)  : i64[]
  }
  %all = size(n=n1)  : i64[]
  %count = subtract(%all, %missed)  : i64[]
  %any = greater_than(%count, %zero)  : bool[]
  while %i < 6 as n2 {
    go    %any then %again
    const %limit = %count  : i64[]
    const %step = %one  : i64[]
    body
      %i2 = add(%i, %step)  : i64[]
      %again = less_than(%i2, %limit)  : bool[]
  }
  while %j < 6 as n3 {
    go    %yes then %again3
    const %limit3 = %count  : i64[]
    const %step3 = %one  : i64[]
    body
      %j2 = add(%j, %step3)  : i64[]
      %again3 = less_than(%j2, %limit3)  : bool[]
  }
  %done = slice(%ys, axis=0, start=0, length=n2)  : f32[n2,B]
  %rows = reshape(%h0, shape=[1, B])  : f32[1,B]
  %joined = concat(%rows, %done, axis=0)  : f32[n2+1,B]
  %a = index(%joined, axis=0, index=n2)  : f32[B]
  %first = slice(%kept, axis=0, start=0, length=n3)  : f32[n3,B]
  %joined3 = concat(%rows, %first, axis=0)  : f32[n3+1,B]
  %k = index(%joined3, axis=0, index=n3)  : f32[B]
  return %a, %k
}"""),
    "only_collected": (hoist_from_scan, """
program p(%x: f32[B,T] arg "x", %y: f32[T+1,B] arg "y", %h0: f32[B] arg "h", %z: f32[6,B] arg "z") {
  %yes = full(value=True, dtype=bool)  : bool[]
  scan %t < T {
    seq   %xt = %x[:, T-1-t]  : f32[B]
    seq   %yt = %y[t+1]  : f32[B]
    carry %h = %h0 then %h2 last %hT  : f32[B]
    stack %as = %a axis 0  : f32[T,B,1]
    stack %bs = %b axis 1  : f32[1,T,B]
    stack %hs = %h2 axis 0  : f32[T,B]
    stack %cs = %kept2 axis 0  : f32[T,B]
    body
      %e = reshape(%xt, shape=[1, B])  : f32[1,B]
      %a = transpose(%e, perm=[1, 0])  : f32[B,1]
      %b = reshape(%yt, shape=[1, B])  : f32[1,B]
      %kept2 = exp(%yt)  : f32[B]
      %kept4 = reshape(%xt, shape=[B])  : f32[B]
      %h2 = add(%h, %kept4)  : f32[B]
  }
  while %r < 6 as n {
    go    %yes then %more
    seq   %zr = %z[r]  : f32[B]
    stack %ds = %kept3 axis 0  : f32[n,1,B]
    body
      %kept3 = reshape(%zr, shape=[1, B])  : f32[1,B]
      %s = sum(%kept3)  : f32[]
      %zero = full(value=0.0, dtype=f32)  : f32[]
      %more = less_than(%zero, %s)  : bool[]
  }
  %total = sum(%ds)  : f32[]
  return %as, %bs, %hs, %cs, %hT, %total
}"""),
    "fuse_loops": (fuse_loops, """
program p(%x: f32[B,T] arg "x", %h0: f32[B] arg "h", %w: f32[B] param "w") {
  scan %t < T {
    const %w1 = %w  : f32[B]
    seq   %xt = %x[:, t]  : f32[B]
    carry %h = %h0 then %h2 last %hT  : f32[B]
    stack %as = %h2 axis 1  : f32[B,T]
    stack %bs = %h axis 0  : f32[T,B]
    body
      %a = multiply(%xt, %w1)  : f32[B]
      %h2 = add(%h, %a)  : f32[B]
  }
  %late = sum(%as, axes=[1])  : f32[B]
  %g0 = neg(%w)  : f32[B]
  scan %u < T {
    const %w2 = %w  : f32[B]
    seq   %xu = %x[:, u]  : f32[B]
    seq   %au = %as[:, u]  : f32[B]
    seq   %bu = %bs[u]  : f32[B]
    carry %g = %g0 then %g2 last %gT  : f32[B]
    stack %cs = %au axis 0  : f32[T,B]
    body
      %i = cast(%u, dtype=f32)  : f32[]
      %c = multiply(%xu, %w2)  : f32[B]
      %d = add(%au, %c)  : f32[B]
      %e = add(%d, %bu)  : f32[B]
      %f = add(%e, %i)  : f32[B]
      %g2 = add(%g, %f)  : f32[B]
  }
  scan %r < T {
    seq   %xr = %x[:, T-1-r]  : f32[B]
    carry %k = %w then %k2 last %kT  : f32[B]
    body
      %k2 = multiply(%k, %xr)  : f32[B]
  }
  scan %kept < T {
    seq   %cr = %cs[T-1-kept]  : f32[B]
    carry %l = %late then %l2 last %lT  : f32[B]
    body
      %l2 = multiply(%l, %cr)  : f32[B]
  }
  scan %kept2 < T {
    carry %m = %lT then %m2 last %mT  : f32[B]
    body
      %m2 = neg(%m)  : f32[B]
  }
  return %hT, %gT, %kT, %mT, %late
}"""),
    "loops_in_order": (fuse_loops, """
program p(%x: f32[3,T] arg "x", %h0: f32[3] arg "h", %n: i64[T] arg "n", %big: f32[300,300] param "w", %y: f32[1,300] arg "y") {
  scan %t < T {
    seq   %xt = %x[:, t]  : f32[3]
    seq   %nt = %n[t]  : i64[]
    carry %h = %h0 then %h2 last %hT  : f32[3]
    body
      %p = less_than(%nt, %nt)  : bool[]
      %q = logical_not(%p)  : bool[]
      check(%q, error="ValueError", message="first")
      %h2 = add(%h, %xt)  : f32[3]
  }
  scan %kept < T {
    seq   %xu = %x[:, kept]  : f32[3]
    seq   %nu = %n[kept]  : i64[]
    carry %g = %h0 then %g2 last %gT  : f32[3]
    body
      %z = subtract(%nu, %nu)  : i64[]
      %a = dynamic_index(%g, %z, axis=0)  : f32[]
      %g2 = add(%xu, %a)  : f32[3]
  }
  scan %r < T {
    seq   %xr = %x[:, r]  : f32[3]
    carry %k = %h0 then %k2 last %kT  : f32[3]
    body
      %k2 = multiply(%k, %xr)  : f32[3]
  }
  scan %v < 3 {
    const %v1 = %big  : f32[300,300]
    carry %i = %y then %i2 last %iT  : f32[1,300]
    body
      %b = matmul(%i, %v1)  : f32[1,300]
      %i2 = tanh(%b)  : f32[1,300]
  }
  scan %kept2 < 3 {
    const %w1 = %big  : f32[300,300]
    carry %j = %y then %j2 last %jT  : f32[1,300]
    body
      %c = matmul(%j, %w1, trans_y=True)  : f32[1,300]
      %j2 = tanh(%c)  : f32[1,300]
  }
  return %hT, %gT, %kT, %iT, %jT
}"""),
    "sums_in_loops": (sums_in_loops, """
program p(%x: f32[B,T] arg "x", %h0: f32[B] arg "h", %n: i64[T] arg "n") {
  scan %t < T {
    seq   %xt = %x[:, t]  : f32[B]
    seq   %nt = %n[t]  : i64[]
    carry %h = %h0 then %h2 last %hT  : f32[B]
    stack %as = %h2 axis 0  : f32[T,B]
    stack %bs = %h2 axis 1  : f32[B,T]
    stack %cs = %h2 axis 1  : f32[B,T]
    stack %ns = %n2 axis 0  : i64[T]
    stack %kept = %h2 axis 0  : f32[T,B]
    stack %kept2 = %h axis 0  : f32[T,B]
    body
      %h2 = add(%h, %xt)  : f32[B]
      %n2 = multiply(%nt, %nt)  : i64[]
  }
  %a = sum(%as, axes=[0])  : f32[B]
  %b = sum(%bs)  : f32[]
  %c = sum(%cs, axes=[1, 0], keepdim=True)  : f32[1,1]
  %d = sum(%ns, axes=[0], keepdim=True)  : i64[1]
  %e = sum(%kept, axes=[1])  : f32[T]
  %f = sum(%kept2, axes=[0])  : f32[B]
  return %a, %b, %c, %d, %e, %f, %kept2, %hT
}"""),
    "split_loops": (split_loops, """
program p(%x: f32[2,T,256] arg "x", %n: i64[T,2] arg "n", %u: f32[256,256] param "u", %v: f32[256,256] param "v", %w: f32[256,512] param "w", %h0: f32[2,256] arg "h", %l0: f32[2] arg "l") {
  scan %t < T {
    const %u1 = %u  : f32[256,256]
    const %v1 = %v  : f32[256,256]
    const %w1 = %w  : f32[256,512]
    seq   %xt = %x[:, t]  : f32[2,256]
    seq   %nt = %n[t]  : i64[2]
    carry %h = %h0 then %h2 last %hT  : f32[2,256]
    carry %g = %h0 then %g2 last %gT  : f32[2,256]
    carry %l = %l0 then %l2 last %lT  : f32[2]
    carry %c = %l0 then %c2  : f32[2]
    stack %gs = %g2 axis 1  : f32[2,T,256]
    stack %hs = %h2 axis 2  : f32[2,256,T]
    body
      %a0 = matmul(%h, %u1)  : f32[2,256]
      %a = scale(%a0, scale=0.05)  : f32[2,256]
      %b = add(%a, %xt)  : f32[2,256]
      %h2 = tanh(%b)  : f32[2,256]
      %d = matmul(%h2, %v1)  : f32[2,256]
      %e = add(%g, %d)  : f32[2,256]
      %g2 = tanh(%e)  : f32[2,256]
      %y = matmul(%g2, %w1)  : f32[2,512]
      %z = tanh(%y)  : f32[2,512]
      %s = sum(%z, axes=[1])  : f32[2]
      %m = cast(%nt, dtype=f32)  : f32[2]
      %c2 = add(%c, %m)  : f32[2]
      %r = multiply(%s, %c)  : f32[2]
      %i = cast(%t, dtype=f32)  : f32[]
      %q = multiply(%r, %i)  : f32[2]
      %l2 = add(%l, %q)  : f32[2]
  }
  return %hT, %gT, %lT, %gs, %hs
}"""),
    "products_beside_a_check": (split_loops, """
program p(%x: f32[2,T,256] arg "x", %y: i64[T,2,1] arg "y", %u: f32[256,256] param "u", %w: f32[256,512] param "w", %h0: f32[2,256] arg "h", %l0: f32[] arg "l") {
  %n = iota(n=2, dtype=i64)  : i64[2]
  %n1 = reshape(%n, shape=[2, 1])  : i64[2,1]
  %most = full(value=512, dtype=i64)  : i64[]
  scan %t < T {
    const %u1 = %u  : f32[256,256]
    const %w1 = %w  : f32[256,512]
    const %rows = %n1  : i64[2,1]
    const %classes = %most  : i64[]
    seq   %xt = %x[:, t]  : f32[2,256]
    seq   %yt = %y[t]  : i64[2,1]
    carry %h = %h0 then %h2 last %hT  : f32[2,256]
    carry %l = %l0 then %l2 last %lT  : f32[]
    body
      %a0 = matmul(%h, %u1)  : f32[2,256]
      %a = scale(%a0, scale=0.05)  : f32[2,256]
      %b = add(%a, %xt)  : f32[2,256]
      %h2 = tanh(%b)  : f32[2,256]
      %m = max(%yt)  : i64[]
      %ok = less_than(%m, %classes)  : bool[]
      check(%ok, error="IndexError", message="a label is too large")
      %z = matmul(%h2, %w1)  : f32[2,512]
      %g = gather_nd(%z, %rows, %yt, axis=0)  : f32[2,1]
      %s = sum(%g)  : f32[]
      %l2 = add(%l, %s)  : f32[]
  }
  return %hT, %lT
}"""),
    "checks_that_stay": (split_loops, """
program p(%x: f32[2,T,256] arg "x", %y: i64[T,2,1] arg "y", %w: f32[256,512] param "w", %h0: f32[2,256] arg "h", %l0: f32[] arg "l") {
  %n = iota(n=2, dtype=i64)  : i64[2]
  %n1 = reshape(%n, shape=[2, 1])  : i64[2,1]
  %most = full(value=512, dtype=i64)  : i64[]
  %none = full(value=9000.0, dtype=f32)  : f32[]
  scan %t < T {
    const %w1 = %w  : f32[256,512]
    const %rows = %n1  : i64[2,1]
    const %classes = %most  : i64[]
    seq   %xt = %x[:, t]  : f32[2,256]
    seq   %yt = %y[t]  : i64[2,1]
    carry %h = %h0 then %h2 last %hT  : f32[2,256]
    carry %l = %l0 then %l2 last %lT  : f32[]
    body
      %h2 = add(%h, %xt)  : f32[2,256]
      %m = max(%yt)  : i64[]
      %ok = less_than(%m, %classes)  : bool[]
      check(%ok, error="ValueError", message="another class of errors than that of an index")
      %z = matmul(%h2, %w1)  : f32[2,512]
      %g = gather_nd(%z, %rows, %yt, axis=0)  : f32[2,1]
      %s = sum(%g)  : f32[]
      %l2 = add(%l, %s)  : f32[]
  }
  scan %r < T {
    const %w2 = %w  : f32[256,512]
    const %top = %none  : f32[]
    seq   %xr = %x[:, r]  : f32[2,256]
    carry %k = %h0 then %k2 last %kT  : f32[2,256]
    carry %j = %l0 then %j2 last %jT  : f32[]
    body
      %k2 = add(%k, %xr)  : f32[2,256]
      %v = matmul(%k2, %w2)  : f32[2,512]
      %q = sum(%v)  : f32[]
      %fine = less_than(%q, %top)  : bool[]
      check(%fine, error="IndexError", message="what the product gives")
      %j2 = add(%j, %q)  : f32[]
  }
  return %hT, %lT, %kT, %jT
}"""),
    "products_that_stay": (split_loops, """
program p(%x: f32[2,T,256] arg "x", %u: f32[256,256] param "u", %w: f32[256,2] param "w", %h0: f32[2,256] arg "h", %p: bool[] arg "p") {
  scan %t < T {
    const %u1 = %u  : f32[256,256]
    const %w1 = %w  : f32[256,2]
    seq   %xt = %x[:, t]  : f32[2,256]
    carry %h = %h0 then %h2 last %hT  : f32[2,256]
    stack %ys = %y axis 0  : f32[T,2,256]
    stack %zs = %s axis 0  : f32[T,2]
    body
      %a0 = matmul(%h, %u1)  : f32[2,256]
      %a = scale(%a0, scale=0.05)  : f32[2,256]
      %b = add(%a, %xt)  : f32[2,256]
      %h2 = tanh(%b)  : f32[2,256]
      %c = matmul(%h2, %u1)  : f32[2,256]
      %y = add(%c, %xt)  : f32[2,256]
      %z = matmul(%h2, %w1)  : f32[2,2]
      %s = sum(%z, axes=[1])  : f32[2]
  }
  while %r < T as n1 {
    go %p then %q
    const %u2 = %u  : f32[256,256]
    carry %k = %h0 then %k2 last %kT  : f32[2,256]
    carry %m = %h0 then %m2 last %mT  : f32[2,256]
    body
      %k2 = tanh(%k)  : f32[2,256]
      %n = matmul(%k2, %u2)  : f32[2,256]
      %m2 = add(%m, %n)  : f32[2,256]
      %three = full(value=3, dtype=i64)  : i64[]
      %q = less_than(%r, %three)  : bool[]
  }
  return %hT, %ys, %zs, %kT, %mT
}"""),
    "unroll_loops": (unroll_loops, """
program p(%x: f32[7,4] arg "x", %z: f32[B,15] arg "z", %w: f32[4] param "w", %h0: f32[4] arg "h", %n: f32[T,4] arg "n") {
  scan %t < 7 unroll 3 {
    const %w1 = %w  : f32[4]
    seq   %xt = %x[6-t]  : f32[4]
    seq   %zt = %z[:, 2*t+1]  : f32[B]
    carry %h = %h0 then %h2 last %hT  : f32[4]
    carry %g = %h0 then %h  : f32[4]
    stack %as = %h2 axis 1  : f32[4,7]
    stack %bs = %zt axis 0  : f32[7,B]
    last  %m = %a  : f32[4]
    body
      %a = multiply(%xt, %w1)  : f32[4]
      %i = cast(%t, dtype=f32)  : f32[]
      %b = multiply(%a, %i)  : f32[4]
      %c = subtract(%h, %b)  : f32[4]
      %h2 = subtract(%c, %g)  : f32[4]
  }
  scan u < 4 unroll 2 {
    const %x1 = %x  : f32[7,4]
    stack %ds = %d axis 0  : f32[4,4]
    last  %e = %d  : f32[4]
    body
      %p = slice(%x1, axis=0, start=u, length=u+1)  : f32[u+1,4]
      %d = max(%p, axes=[0])  : f32[4]
  }
  scan %r < 2 unroll 5 {
    seq   %xr = %x[r]  : f32[4]
    carry %k = %h0 then %k2 last %kT  : f32[4]
    body
      %k2 = multiply(%k, %xr)  : f32[4]
  }
  scan %kept < T unroll 2 {
    seq   %nr = %n[kept]  : f32[4]
    carry %q = %h0 then %q2 last %qT  : f32[4]
    body
      %q2 = subtract(%q, %nr)  : f32[4]
  }
  return %hT, %as, %bs, %m, %ds, %e, %kT, %qT
}"""),
    "known_addresses": (known_addresses, """
program p(%x: f32[T,4] arg "x", %y: f32[9,4] arg "y", %k0: i64[] arg "k") {
  %zero = full(value=0, dtype=i64)  : i64[]
  %eight = full(value=8, dtype=i64)  : i64[]
  scan %t < 8 {
    carry %h = %y then %h2 last %hT  : f32[9,4]
    carry %i = %eight then %i2  : i64[]
    const %k = %k0  : i64[]
    body
      %i2 = scale(%i, bias=-1.0)  : i64[]
      %a = dynamic_index(%h, %t, axis=0)  : f32[4]
      %b = dynamic_index(%h, %i2, axis=0)  : f32[4]
      %before = subtract(%t, %i2)  : i64[]
      %kept = dynamic_index(%h, %before, axis=0)  : f32[4]
      %other = dynamic_index(%h, %k, axis=0)  : f32[4]
      %c = add(%a, %b)  : f32[4]
      %d = add(%kept, %other)  : f32[4]
      %e = multiply(%c, %d)  : f32[4]
      %h2 = set_dynamic_index(%h, %e, %i, axis=0)  : f32[9,4]
  }
  scan s < T {
    carry %g = %x then %g2 last %gT  : f32[T,4]
    body
      %n = size(n=T-s-1)  : i64[]
      %u = dynamic_index(%g, %n, axis=0)  : f32[4]
      %v = tanh(%u)  : f32[4]
      scan %r < 3 {
        carry %f = %g then %f2 last %g2  : f32[T,4]
        const %v1 = %v  : f32[4]
        const %n1 = %n  : i64[]
        body
          %f2 = set_dynamic_index(%f, %v1, %n1, axis=0)  : f32[T,4]
      }
  }
  return %hT, %gT
}"""),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_rewrites(name, golden):
    rewrite, text = CASES[name]
    after = check(rewrite, program(text), golden, exact="sum" not in text and "matmul" not in text)
    assert str(rewrite(after)) == str(after), "the second application changes something"


def test_a_number_that_does_not_fit_what_reads_the_loop():
    """Read from its last step on, a loop without one stays a while: the check fails as it would."""
    p = program("""
program p(%h0: f32[3] arg "h") {
  %zero = full(value=0, dtype=i64)  : i64[]
  %no = less_than(%zero, %zero)  : bool[]
  while %t as n {
    go %no then %more
    const %end = %zero  : i64[]
    carry %i = %zero then %i2  : i64[]
    carry %h = %h0 then %h2  : f32[3]
    stack %hs = %h2 axis 0  : f32[n,3]
    body
      %h2 = exp(%h)  : f32[3]
      %i2 = scale(%i, bias=1.0)  : i64[]
      %more = less_than(%i2, %end)  : bool[]
  }
  %back = slice(%hs, axis=0, start=n-1, length=n, step=-1)  : f32[n,3]
  return %back
}""")
    after = known_trips(p)
    assert "while %t < 0 as n" in str(verify(after))
    assert str(known_trips(after)) == str(after)


def test_every_rule_has_a_case():
    assert {f.__name__ for f in (*invariant.RULES, invariant.seq_of_equal_steps)} <= set(CASES)


# ---------------------------------------------------------------- time
T = Size.named("T")
ROW, ROWS = Type(F32, (3,)), Type(F32, (T, 3))


class Loop:
    """A loop over the rows %xt of %x; `h` and `g` are other inputs."""

    def __init__(self) -> None:
        self.x, self.h, self.g = Value(ROWS, "x"), Value(ROW, "h"), Value(ROW, "g")
        self.xt = Value(ROW, "xt")
        self.ports: list = [Seq(self.xt, self.x, 0)]
        self.body = Builder()
        self.outputs: list[Value] = []

    def const(self) -> Value:
        self.ports.append(Const(Value(ROW, "c"), self.h))
        return self.ports[-1].inner

    def state(self) -> Value:
        return Value(ROW, "s")

    def carry(self, state: Value, after: Value, shown: bool = False) -> None:
        self.ports.append(Carry(state, self.h, after, Value(ROW, "last")))
        if shown:
            self.outputs.append(self.ports[-1].last)

    def stack(self, v: Value) -> None:
        self.ports.append(Stack(Value(ROWS, "ys"), v, 0))
        self.outputs.append(self.ports[-1].outer)

    def sum(self, values: list[Value]) -> Value:
        total = self.xt
        for v in values:
            total = self.body.add(total, v)
        return total

    def program(self) -> Program:
        loop = Scan(Value(Type(I64), "t"), T, in_order(self.ports), tuple(self.body.ops))
        inputs = tuple(Input(v, "arg", v.name) for v in (self.x, self.h, self.g))
        return verify(Program("p", inputs, (loop,), tuple(self.outputs)))


def equal_consts(q: Loop, n: int) -> None:
    q.stack(q.sum([q.const() for _ in range(n)]))


def carries_that_stay(q: Loop, n: int) -> None:
    states = [q.state() for _ in range(n)]
    q.stack(q.sum(states))
    for s in states:
        q.carry(s, s)


def equal_carries(q: Loop, n: int) -> None:
    states = [q.state() for _ in range(n)]
    q.stack(q.sum(states))
    for s in states:
        q.carry(s, q.body.add(s, q.xt))


def chain_of_states(q: Loop, n: int) -> None:
    """Each state reads the one before; the last one is a result."""
    states = [q.state() for _ in range(n)]
    for s, before in zip(states, [states[-1], *states]):
        q.carry(s, q.body.add(before, q.xt), shown=s is states[-1])


def unused_chain(q: Loop, n: int) -> None:
    states = [q.state() for _ in range(n)]
    for s, before in zip(states, [states[-1], *states]):
        q.carry(s, q.body.add(before, q.xt))
    q.stack(q.body.tanh(q.xt))


def stacks(q: Loop, n: int) -> None:
    y = q.xt
    for _ in range(n):
        y = q.body.tanh(y)
        q.stack(y)


def invariant_ops(q: Loop, n: int) -> None:
    y = q.const()
    for _ in range(n):
        y = q.body.tanh(y)
    q.stack(q.body.add(y, q.xt))


def long_body(q: Loop, n: int) -> None:
    state = q.state()
    y = state
    for _ in range(n):
        y = q.body.add(q.body.tanh(y), q.xt)
    q.carry(state, y, shown=True)


LOOPS = [
    equal_consts,
    carries_that_stay,
    equal_carries,
    chain_of_states,
    unused_chain,
    stacks,
    invariant_ops,
    long_body,
]


def calls_of(run: Callable[[], object]) -> int:
    """How many functions are called: a measure of time that does not depend on the machine."""
    counter = Profile()
    counter.runcall(run)
    return sum(q.callcount for q in counter.getstats())


def cost(loop: Callable[[Loop, int], None], n: int) -> dict[str, int]:
    """The calls of every pass that is about loops, on a loop of size `n`."""
    q, out = Loop(), dict[str, int]()
    loop(q, n)
    p = q.program()
    for f, _ in PIPELINE:
        if f.__module__.startswith(("ir.passes.loops", "ir.passes.unrolling")):
            after: list[Program] = []
            calls = calls_of(lambda f=f, p=p, after=after: after.append(f(p)))
            out[f.__name__] = out.get(f.__name__, 0) + calls
            (p,) = after
        else:
            p = f(p)
    return out


@pytest.mark.slow
@pytest.mark.parametrize("loop", LOOPS[::4], ids=lambda f: f.__name__)
def test_time_is_linear(loop):
    """The others, too, in the next test, up to more ops."""
    small, large = cost(loop, 250), cost(loop, 500)
    for name, calls in small.items():
        assert large[name] <= 2.4 * calls + 2000, (name, calls, large[name])


@pytest.mark.slow
@pytest.mark.parametrize("loop", LOOPS, ids=lambda f: f.__name__)
def test_time_is_linear_up_to_2000_ops(loop):
    small, large = cost(loop, 500), cost(loop, 2000)
    for name, calls in small.items():
        assert large[name] <= 5 * calls + 2000, (name, calls, large[name])
