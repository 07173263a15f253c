# ruff: noqa: E501
"""Rewrites of loops: every rule by its text (tests/golden/ir_loops/) and by its values.

`kept` names what a rule must leave alone.
"""

from __future__ import annotations

import random

import pytest

from ir import (
    Builder,
    Carry,
    Const,
    Input,
    Program,
    Scan,
    Seq,
    ShapeError,
    Size,
    Stack,
    Type,
    Value,
    verify,
)
from ir.passes import (
    drop_unused_ports,
    hoist_from_scan,
    hoist_invariants,
    run,
    to_seq,
    to_stack,
)
from ir.passes.loops import ports
from ir.types import F32, I64
from tests.ir.test_ir_random import check, program

B, T = Size.named("B"), Size.named("T")

LOOPS = {
    "carry_that_stays": (drop_unused_ports, """
program p(%x: f32[3] arg "x", %h0: f32[3] arg "h") {
  scan %t < T {
    const %k1 = %h0  : f32[3]
    seq   %xt = %xs[t]  : f32[3]
    carry %h = %h0 then %h last %hT  : f32[3]
    carry %k = %h0 then %k1 last %kT  : f32[3]
    stack %ys = %y axis 0  : f32[T,3]
    body
      %a = add(%h, %k)  : f32[3]
      %y = add(%a, %xt)  : f32[3]
  }
  return %hT, %kT, %ys
}""".replace('%x: f32[3] arg "x"', '%xs: f32[T,3] arg "x"')),
    "carry_of_one_number": (drop_unused_ports, """
program p(%x: f32[T,3] arg "x") {
  %a0 = full(value=0.0, shape=[3], dtype=f32)  : f32[3]
  %b0 = full(value=-0.0, shape=[3], dtype=f32)  : f32[3]
  %c0 = full(value=0.0, shape=[3], dtype=f32)  : f32[3]
  scan %t < T {
    const %c2 = %c0  : f32[3]
    seq   %xt = %x[t]  : f32[3]
    carry %a = %a0 then %n last %aT  : f32[3]
    carry %kept_other = %b0 then %n  : f32[3]
    carry %c = %a0 then %c2  : f32[3]
    carry %kept_shown = %a0 then %n last %dT  : f32[3]
    stack %ys = %y axis 0  : f32[T,3]
    body
      %n = full(value=0.0, shape=[3], dtype=f32)  : f32[3]
      %s1 = add(%a, %kept_other)  : f32[3]
      %s2 = add(%s1, %kept_shown)  : f32[3]
      %s3 = add(%s2, %c)  : f32[3]
      %y = add(%s3, %xt)  : f32[3]
  }
  %e = neg(%aT)  : f32[3]
  return %ys, %e, %dT
}"""),
    "same_port_twice": (drop_unused_ports, """
program p(%x: f32[T,3] arg "x", %w: f32[3] param "w") {
  scan %t < T {
    const %w1 = %w  : f32[3]
    const %w2 = %w  : f32[3]
    seq   %a = %x[t]  : f32[3]
    seq   %b = %x[t]  : f32[3]
    seq   %kept = %x[T-1-t]  : f32[3]
    carry %h = %w then %y last %hT  : f32[3]
    carry %g = %w then %y last %gT  : f32[3]
    stack %ys = %y axis 0  : f32[T,3]
    stack %zs = %y axis 0  : f32[T,3]
    stack %us = %y axis 0  : f32[T,3]
    body
      %c = multiply(%a, %w1)  : f32[3]
      %d = multiply(%b, %w2)  : f32[3]
      %e = add(%c, %d)  : f32[3]
      %f = add(%e, %h)  : f32[3]
      %i = add(%f, %kept)  : f32[3]
      %y = add(%i, %g)  : f32[3]
  }
  %m = neg(%ys)  : f32[T,3]
  %n = exp(%zs)  : f32[T,3]
  return %m, %n, %us, %hT, %gT
}"""),
    "equal_states": (drop_unused_ports, """
program p(%x: f32[T,3] arg "x", %h: f32[3] arg "h", %g: f32[3] arg "g") {
  scan %t < T {
    const %h1 = %h  : f32[3]
    seq   %xt = %x[t]  : f32[3]
    carry %a = %h then %a2 last %aT  : f32[3]
    carry %b = %h then %b2 last %bT  : f32[3]
    carry %kept = %g then %k2 last %kT  : f32[3]
    carry %c = %h then %d last %cT  : f32[3]
    carry %d = %h then %h1 last %dT  : f32[3]
    carry %e = %g then %f last %eT  : f32[3]
    carry %f = %g then %e last %fT  : f32[3]
    stack %as = %u axis 0  : f32[T,3]
    stack %bs = %v axis 0  : f32[T,3]
    body
      %a2 = add(%a, %xt)  : f32[3]
      %b2 = add(%b, %xt)  : f32[3]
      %k2 = add(%kept, %xt)  : f32[3]
      %u = add(%a2, %c)  : f32[3]
      %v = add(%b2, %d)  : f32[3]
  }
  %s = add(%aT, %bT)  : f32[3]
  %r = add(%cT, %fT)  : f32[3]
  return %s, %kT, %r, %as, %bs
}"""),
    "same_result_twice": (drop_unused_ports, """
program p(%x: f32[2,3] arg "x") {
  scan %t < 2 {
    seq   %xt = %x[t]  : f32[3]
    stack %kept = %y axis 0  : f32[2,3]
    stack %ys = %y axis 0  : f32[2,3]
    stack %zs = %y axis 0  : f32[2,3]
    stack %other = %y axis 1  : f32[3,2]
    last  %a = %y  : f32[3]
    last  %b = %y  : f32[3]
    body
      %y = exp(%xt)  : f32[3]
  }
  %m = neg(%ys)  : f32[2,3]
  %n = exp(%zs)  : f32[2,3]
  return %kept, %m, %n, %other, %a, %b
}"""),
    "last_of_const": (drop_unused_ports, """
program p(%x: f32[T,3] arg "x") {
  scan %t < 2 {
    const %y = %x  : f32[T,3]
    last  %z = %y  : f32[T,3]
    body
  }
  return %z
}"""),
    "last_of_carried": (drop_unused_ports, """
program p(%x: f32[T,3] arg "x") {
  scan %t < 2 {
    carry %h = %x then %h2 last %hT  : f32[T,3]
    carry %g = %x then %g2  : f32[T,3]
    last  %z = %h2  : f32[T,3]
    last  %u = %g2  : f32[T,3]
    last  %v = %g2  : f32[T,3]
    body
      %h2 = tanh(%h)  : f32[T,3]
      %g2 = neg(%g)  : f32[T,3]
  }
  return %z, %hT, %u, %v
}"""),
    "carry_that_nobody_reads": (drop_unused_ports, """
program p(%x: f32[3,T] arg "x", %y: f32[T,3] arg "y", %z: f32[T] arg "z", %v: f32[3] arg "v") {
  scan %t < 3 {
    seq   %xt = %x[t]  : f32[T]
    carry %h = %z then %h2 last %hT  : f32[T]
    body
      %h2 = tanh(%xt)  : f32[T]
  }
  scan %s < T {
    seq   %yt = %y[s]  : f32[3]
    carry %kept = %v then %k2 last %kT  : f32[3]
    body
      %k2 = tanh(%yt)  : f32[3]
  }
  return %hT, %kT
}"""),
    "stack_of_whole_seq": (drop_unused_ports, """
program p(%x: f32[3,T,2] arg "x") {
  scan %t < T {
    seq   %a = %x[:, t]  : f32[3,2]
    seq   %b = %x[:, T-1-t]  : f32[3,2]
    stack %same = %a axis 1  : f32[3,T,2]
    stack %moved = %a axis 0  : f32[T,3,2]
    stack %kept = %b axis 0  : f32[T,3,2]
    body
  }
  return %same, %moved, %kept
}"""),
    "carries_that_feed_themselves": (drop_unused_ports, """
program p(%x: f32[T,3] arg "x", %h0: f32[3] arg "h") {
  scan %t < T {
    const %unused = %x  : f32[T,3]
    seq   %xt = %x[t]  : f32[3]
    carry %h = %h0 then %h2 last %hT  : f32[3]
    carry %a = %h0 then %b2  : f32[3]
    carry %b = %h0 then %a2 last %bT  : f32[3]
    stack %ys = %a2 axis 0  : f32[T,3]
    body
      %h2 = add(%h, %xt)  : f32[3]
      %a2 = tanh(%a)  : f32[3]
      %b2 = neg(%b)  : f32[3]
  }
  return %hT
}"""),
    "states_of_nested_loops": (drop_unused_ports, """
program p(%x: f32[T,3] arg "x", %h0: f32[3] arg "h", %state: i64[2] rng "generator", %p: bool[] arg "p") {
  scan %t < T {
    const %p1 = %p  : bool[]
    seq   %xt = %x[t]  : f32[3]
    carry %h = %h0 then %h2 last %hT  : f32[3]
    carry %u = %h0 then %uT last %uE  : f32[3]
    carry %w = %h0 then %w2 last %wT  : f32[3]
    carry %s = %state then %s2 last %sT  : i64[2]
    body
      %h2 = add(%h, %xt)  : f32[3]
      scan %k < 4 {
        const %x1 = %xt  : f32[3]
        const %w1 = %w  : f32[3]
        carry %v = %u then %v2 last %uT  : f32[3]
        stack %vs = %v2 axis 0  : f32[4,3]
        body
          %v2 = add(%v, %w1)  : f32[3]
      }
      %vsum = sum(%vs, axes=[0])  : f32[3]
      cond %p1 {
        const %w3 = %vsum  : f32[3]
        const %w4 = %w  : f32[3]
        join  %w2 = %w3 else %w4  : f32[3]
        then
        else
      }
      %s2 = add(%s, %s)  : i64[2]
  }
  return %hT
  write %state = %sT
}"""),
    "states_of_a_while_loop": (drop_unused_ports, """
program p(%x: f32[3] arg "x", %n: i64[] arg "n", %p: bool[] arg "p") {
  while %t < 5 as n1 {
    go %p then %q
    const %n1_ = %n  : i64[]
    carry %i = %n then %i2 last %iT  : i64[]
    carry %a = %x then %a2 last %aT  : f32[3]
    carry %b = %x then %c2 last %bT  : f32[3]
    carry %c = %x then %b last %cT  : f32[3]
    stack %cs = %c2 axis 0  : f32[n1,3]
    stack %as = %a2 axis 0  : f32[n1,3]
    body
      %one = full(value=1, dtype=i64)  : i64[]
      %i2 = add(%i, %one)  : i64[]
      %a2 = tanh(%a)  : f32[3]
      %c2 = tanh(%c)  : f32[3]
      %q = less_than(%i2, %n1_)  : bool[]
  }
  %k = size(n=n1)  : i64[]
  return %aT, %k
}"""),
    "seq_ports": (to_seq, """
program p(%x: f32[3,T,2] arg "x", %y: f32[T+1,2] arg "y", %z: f32[2*T,2] arg "z", %h0: f32[2] arg "h") {
  %one = full(value=1, dtype=i64)  : i64[]
  scan %t < T {
    const %x1 = %x  : f32[3,T,2]
    const %y1 = %y  : f32[T+1,2]
    const %z1 = %z  : f32[2*T,2]
    const %one1 = %one  : i64[]
    carry %h = %h0 then %h2 last %hT  : f32[2]
    body
      %a = dynamic_index(%x1, %t, axis=1)  : f32[3,2]
      %a2 = dynamic_index(%x1, %t, axis=-2)  : f32[3,2]
      %n = size(n=T)  : i64[]
      %i = subtract(%n, %one1)  : i64[]
      %j = subtract(%i, %t)  : i64[]
      %b = dynamic_index(%x1, %j, axis=1)  : f32[3,2]
      %k = add(%t, %one1)  : i64[]
      %c = dynamic_index(%y1, %k, axis=0)  : f32[2]
      %d = dynamic_index(%y1, %t, axis=0)  : f32[2]
      %two = full(value=2, dtype=i64)  : i64[]
      %l = multiply(%two, %t)  : i64[]
      %e = dynamic_index(%z1, %l, axis=0)  : f32[2]
      %m = neg(%t)  : i64[]
      %kept = dynamic_index(%y1, %m, axis=0)  : f32[2]
      %ab = add(%a, %b)  : f32[3,2]
      %aab = add(%ab, %a2)  : f32[3,2]
      %s = sum(%aab, axes=[0])  : f32[2]
      %cd = add(%c, %d)  : f32[2]
      %ek = add(%e, %kept)  : f32[2]
      %cdek = add(%cd, %ek)  : f32[2]
      %g = add(%s, %cdek)  : f32[2]
      %h2 = add(%h, %g)  : f32[2]
  }
  return %hT
}"""),
    "seq_beside_const": (to_seq, """
program p(%x: f32[T,2] arg "x", %h0: f32[T,2] arg "h") {
  scan %t < T {
    const %x1 = %x  : f32[T,2]
    carry %h = %h0 then %h2 last %hT  : f32[T,2]
    body
      %a = dynamic_index(%x1, %t, axis=0)  : f32[2]
      %b = add(%x1, %a)  : f32[T,2]
      %h2 = add(%h, %b)  : f32[T,2]
  }
  return %hT
}"""),
    "stack_ports": (to_stack, """
program p(%x: f32[B,T] arg "x", %b0: f32[B,T] buffer "b", %c0: f32[T+1,B] arg "c") {
  %zero = full(value=0.0, shape=[T, B], dtype=f32)  : f32[T,B]
  scan %t < T {
    seq   %xt = %x[:, t]  : f32[B]
    carry %b = %b0 then %b2 last %bT  : f32[B,T]
    carry %kept = %c0 then %c2 last %cT  : f32[T+1,B]
    carry %read = %zero then %r2 last %rT  : f32[T,B]
    body
      %y = tanh(%xt)  : f32[B]
      %b2 = set_dynamic_index(%b, %y, %t, axis=1)  : f32[B,T]
      %c2 = set_dynamic_index(%kept, %y, %t, axis=0)  : f32[T+1,B]
      %s = sum(%read, axes=[0])  : f32[B]
      %r2 = set_dynamic_index(%read, %s, %t, axis=0)  : f32[T,B]
  }
  return %cT, %rT
  write %b0 = %bT
}"""),
    "invariants": (hoist_invariants, """
program p(%x: f32[T,4] arg "x", %w: f32[4,2] param "w", %i: i64[] arg "i") {
  scan %t < T {
    const %w1 = %w  : f32[4,2]
    const %i1 = %i  : i64[]
    seq   %xt = %x[t]  : f32[4]
    stack %ys = %y axis 0  : f32[T,2]
    body
      %w2 = tanh(%w1)  : f32[4,2]
      %w3 = exp(%w2)  : f32[4,2]
      %kept = dynamic_index(%w1, %i1, axis=0)  : f32[2]
      %zero = full(value=0, dtype=i64)  : i64[]
      %safe = dynamic_index(%w1, %zero, axis=0)  : f32[2]
      %z = matmul(%xt, %w3)  : f32[2]
      %a = add(%z, %kept)  : f32[2]
      %y = add(%a, %safe)  : f32[2]
  }
  return %ys
}"""),
    "invariants_of_nested_loops": (hoist_invariants, """
program p(%x: f32[T,4] arg "x", %w: f32[4] param "w") {
  scan %t < T {
    const %w1 = %w  : f32[4]
    const %x1 = %x  : f32[T,4]
    stack %ys = %gT axis 0  : f32[T,4]
    body
      scan %s < T {
        const %w2 = %w1  : f32[4]
        const %x2 = %x1  : f32[T,4]
        const %t2 = %t  : i64[]
        carry %g = %w1 then %g2 last %gT  : f32[4]
        body
          %a = dynamic_index(%x2, %t2, axis=0)  : f32[4]
          %b = exp(%w2)  : f32[4]
          %c = add(%a, %b)  : f32[4]
          %d = tanh(%c)  : f32[4]
          %g2 = add(%g, %d)  : f32[4]
      }
  }
  return %ys
}"""),
    "batched_matmul": (hoist_from_scan, """
program p(%x: f32[B,T,3] arg "x", %w: f32[4,3] param "w", %b: f32[4] param "b", %u: f32[4,4] param "u", %h0: f32[B,4] arg "h") {
  scan %t < T {
    const %w1 = %w  : f32[4,3]
    const %b1 = %b  : f32[4]
    const %u1 = %u  : f32[4,4]
    seq   %xt = %x[:, t]  : f32[B,3]
    carry %h = %h0 then %h2 last %hT  : f32[B,4]
    stack %ys = %h2 axis 1  : f32[B,T,4]
    body
      %xs = scale(%xt, scale=2.0)  : f32[B,3]
      %a = matmul(%xs, %w1, trans_y=True)  : f32[B,4]
      %c = add(%a, %b1)  : f32[B,4]
      %r = matmul(%h, %u1)  : f32[B,4]
      %d = add(%c, %r)  : f32[B,4]
      %stays = tanh(%xt)  : f32[B,3]
      %s = sum(%stays, axes=[1], keepdim=True)  : f32[B,1]
      %e = add(%d, %s)  : f32[B,4]
      %h2 = tanh(%e)  : f32[B,4]
  }
  return %ys, %hT
}"""),
    "batched_embedding": (hoist_from_scan, """
program p(%ids: i64[B,T] arg "ids", %table: f32[5,3] param "table", %h0: f32[B,3] arg "h") {
  scan %t < T {
    const %table1 = %table  : f32[5,3]
    seq   %it = %ids[:, T-1-t]  : i64[B]
    carry %h = %h0 then %h2 last %hT  : f32[B,3]
    body
      %e = embedding(%it, %table1)  : f32[B,3]
      %a = add(%e, %h)  : f32[B,3]
      %h2 = tanh(%a)  : f32[B,3]
  }
  return %hT
}"""),
    "batched_reverse": (hoist_from_scan, """
program p(%x: f32[T,B,3] arg "x", %w: f32[3,3] param "w", %h0: f32[B,3] arg "h") {
  scan %t < T {
    const %w1 = %w  : f32[3,3]
    seq   %xt = %x[T-1-t]  : f32[B,3]
    carry %h = %h0 then %h2 last %hT  : f32[B,3]
    body
      %b = matmul(%xt, %w1)  : f32[B,3]
      %h2 = add(%h, %b)  : f32[B,3]
  }
  return %hT
}"""),
    "batched_scatter": (hoist_from_scan, """
program p(%y: f32[T,B,1] arg "y", %ids: i64[T,B,1] arg "ids", %z: f32[T,B,5] arg "z", %w: f32[3,5] param "w", %h0: f32[B,3] arg "h") {
  %n = iota(n=B, dtype=i64)  : i64[B]
  %n1 = reshape(%n, shape=[B, 1])  : i64[B,1]
  %zeros = full(value=0, shape=[B, 5], dtype=f32)  : f32[B,5]
  scan %t < T {
    const %w1 = %w  : f32[3,5]
    const %rows = %n1  : i64[B,1]
    const %o = %zeros  : f32[B,5]
    seq   %yt = %y[T-1-t]  : f32[B,1]
    seq   %it = %ids[T-1-t]  : i64[B,1]
    seq   %zt = %z[T-1-t]  : f32[B,5]
    carry %h = %h0 then %h2 last %hT  : f32[B,3]
    body
      %a = scatter_nd(%o, %yt, %rows, %it, axis=0, combine="add")  : f32[B,5]
      %b = subtract(%a, %zt)  : f32[B,5]
      %c = matmul(%b, %w1, trans_y=True)  : f32[B,3]
      %h2 = add(%h, %c)  : f32[B,3]
  }
  return %hT
}"""),
    "seq_of_transpose": (to_seq, """
program p(%x: f32[B,T,3] arg "x", %h0: f32[B,3] arg "h", %k0: f32[3,B] arg "k") {
  %y = transpose(%x, perm=[1, 0, 2])  : f32[T,B,3]
  %z = transpose(%x, perm=[1, 2, 0])  : f32[T,3,B]
  scan %t < T {
    const %y1 = %y  : f32[T,B,3]
    const %z1 = %z  : f32[T,3,B]
    carry %h = %h0 then %h2 last %hT  : f32[B,3]
    carry %k = %k0 then %k2 last %kT  : f32[3,B]
    body
      %yt = dynamic_index(%y1, %t, axis=0)  : f32[B,3]
      %h2 = add(%h, %yt)  : f32[B,3]
      %kept = dynamic_index(%z1, %t, axis=0)  : f32[3,B]
      %k2 = add(%k, %kept)  : f32[3,B]
  }
  return %hT, %kT
}"""),
    "transpose_of_stack": (to_stack, """
program p(%x: f32[T,B,3] arg "x") {
  scan %t < T {
    seq   %xt = %x[t]  : f32[B,3]
    stack %ys = %y axis 0  : f32[T,B,3]
    stack %zs = %z axis 0  : f32[T,B,3]
    body
      %y = neg(%xt)  : f32[B,3]
      %z = neg(%y)  : f32[B,3]
  }
  %a = transpose(%ys, perm=[1, 0, 2])  : f32[B,T,3]
  %kept = transpose(%zs, perm=[2, 1, 0])  : f32[3,B,T]
  %b = neg(%a)  : f32[B,T,3]
  return %b, %kept
}"""),
    "batched_layer_norm": (hoist_from_scan, """
program p(%x: f32[T,B,4] arg "x", %g: f32[4] param "g", %w: f32[2,2] param "w", %h0: f32[B,2,2] arg "h", %m: f32[B,1,1] arg "m") {
  scan %t < T {
    const %g1 = %g  : f32[4]
    const %w1 = %w  : f32[2,2]
    const %m1 = %m  : f32[B,1,1]
    seq   %xt = %x[t]  : f32[B,4]
    carry %h = %h0 then %h2 last %hT  : f32[B,2,2]
    body
      %s = sum(%xt, axes=[1], keepdim=True)  : f32[B,1]
      %a = subtract(%xt, %s)  : f32[B,4]
      %b = multiply(%a, %g1)  : f32[B,4]
      %c = reshape(%b, shape=[B, 2, 2])  : f32[B,2,2]
      %d = transpose(%c, perm=[0, 2, 1])  : f32[B,2,2]
      %e = multiply(%d, %m1)  : f32[B,2,2]
      %k = slice(%e, axis=2, start=1, length=2, step=-1)  : f32[B,2,2]
      %q = index(%k, axis=1, index=0)  : f32[B,2]
      %r = reshape(%q, shape=[B, 1, 2])  : f32[B,1,2]
      %u = expand(%r, shape=[B, 2, 2])  : f32[B,2,2]
      %z = matmul(%u, %w1)  : f32[B,2,2]
      %h2 = add(%h, %z)  : f32[B,2,2]
  }
  return %hT
}"""),
    "axes_that_disagree": (hoist_from_scan, """
program p(%x: f32[T,B,3] arg "x", %y: f32[B,T,3] arg "y", %w: f32[3,3] param "w", %h0: f32[B,3] arg "h") {
  scan %t < T {
    const %w1 = %w  : f32[3,3]
    seq   %xt = %x[t]  : f32[B,3]
    seq   %yt = %y[:, t]  : f32[B,3]
    carry %h = %h0 then %h2 last %hT  : f32[B,3]
    body
      %a = add(%xt, %yt)  : f32[B,3]
      %b = matmul(%a, %w1)  : f32[B,3]
      %h2 = add(%h, %b)  : f32[B,3]
  }
  return %hT
}"""),
    "sunk_matmul": (hoist_from_scan, """
program p(%x: f32[B,T,3] arg "x", %w: f32[3,4] param "w", %b: f32[4] param "b", %h0: f32[B,3] arg "h") {
  scan %t < T {
    const %w1 = %w  : f32[3,4]
    const %b1 = %b  : f32[4]
    seq   %xt = %x[:, t]  : f32[B,3]
    carry %h = %h0 then %h2 last %hT  : f32[B,3]
    stack %ys = %y axis 1  : f32[B,T,4]
    stack %zs = %z axis 0  : f32[T,B,4]
    body
      %c = add(%h, %xt)  : f32[B,3]
      %h2 = tanh(%c)  : f32[B,3]
      %d = neg(%h2)  : f32[B,3]
      %o = matmul(%d, %w1)  : f32[B,4]
      %y = add(%o, %b1)  : f32[B,4]
      %z = matmul(%h2, %w1)  : f32[B,4]
  }
  return %ys, %zs, %hT
}"""),
}  # fmt: skip


@pytest.mark.parametrize("name", LOOPS)
def test_loops(name, golden):
    rewrite, text = LOOPS[name]
    exact = not any(op in text for op in ("matmul", "sum", "tanh"))
    check(rewrite, program(text), golden, exact)


def test_every_rule_has_a_case():
    assert {f.__name__ for f in ports.RULES} <= set(LOOPS)


# ---------------------------------------------------------------- random loops
def random_loop(seed: int) -> Program:
    """Slices of sequences along any axis, through ops that batch and ops that do not."""
    r = random.Random(seed)
    b, inputs = Builder(), []

    def given(name: str, *shape: int | Size) -> Value:
        inputs.append(Input(Value(Type(F32, shape), name), "arg", name))
        return inputs[-1].value

    given("length", T)
    ports: list = []
    for n in range(3):
        inner = r.choice([(B, 3), (3,), (B, 1), (1, 3), (2, B, 3)])
        axis, extra = r.randint(0, len(inner)), r.choice([0, 0, 0, 1])
        x = given(f"x{n}", *inner[:axis], T + extra, *inner[axis:])
        start, step = r.choice([(extra, 1), (0, 1), (T - 1, -1)])
        ports.append(Seq(Value(Type(F32, inner), f"s{n}"), x, axis, start, step))
    for n, shape in enumerate([(3, 3), (3,), (B, 3), (B, 1)]):
        ports.append(Const(Value(Type(F32, shape), f"k{n}"), given(f"w{n}", *shape)))
    h = Value(Type(F32, (B, 3)), "h")
    pool, weights = [p.inner for p in ports] + [h], ports[3].inner
    for _ in range(r.randint(4, 14)):
        x, y = r.choice(pool), r.choice(pool)
        kind = r.choice(["add", "add", "multiply", "neg", "matmul", "matmul", "transpose",
                         "reshape", "index", "slice", "sum", "expand"])  # fmt: skip
        step = looped(b, r, kind, x, y, weights)
        if b.requires:
            b.ops.pop()
            b.requires.clear()
        elif step is not None:
            pool.append(step)
    made = [v for v in pool if v.type == h.type and v is not h] or [h]
    last, first = Value(h.type, "hT"), given("h0", B, 3)
    ports.append(Carry(h, first, r.choice(made), last))
    outputs = [last]
    for v in r.sample(pool, 3):
        axis = r.randint(0, v.type.ndim)
        shape = (*v.type.shape[:axis], T, *v.type.shape[axis:])
        outputs.append(Value(Type(F32, shape), "ys"))
        ports.append(Stack(outputs[-1], v, axis))
    scan = Scan(Value(Type(I64), "t"), T, tuple(ports), tuple(b.ops))
    return verify(Program("p", tuple(inputs), (scan,), tuple(outputs)))


def looped(b: Builder, r: random.Random, kind: str, x: Value, y: Value, w: Value) -> Value | None:
    ndim, shape = x.type.ndim, x.type.shape
    axis = r.randrange(ndim)
    try:
        if kind in ("add", "multiply"):
            return b.emit(kind, (x, y))[0] if ndim + y.type.ndim < 6 else None
        if kind == "matmul":
            return b.matmul(b.scale(x, scale=0.5), w, trans_y=r.random() < 0.5)
        if kind == "transpose":
            return b.transpose(x, perm=tuple(r.sample(range(ndim), ndim)))
        if kind == "reshape":
            return b.reshape(x, shape=(*shape[:axis], 1, *shape[axis:])) if ndim < 4 else None
        if kind == "index":
            return b.index(x, axis=axis, index=0) if shape[axis] in (1, 2, 3) and ndim > 1 else None
        if kind == "slice":
            n = shape[axis]
            return b.slice(x, axis=axis, start=n - 1, length=n, step=-1)
        if kind == "sum":
            return b.sum(x, axes=(axis,), keepdim=True)
        if kind == "expand":
            return b.expand(x, shape=(B, 3))
        return b.neg(x)
    except ShapeError:
        return None


@pytest.mark.slow
@pytest.mark.parametrize("start", range(0, 100, 20), ids=lambda s: f"seeds-{s}")
def test_random_loops_keep_their_values(start):
    for seed in range(start, start + 20):
        p = random_loop(seed)
        try:
            check(hoist_from_scan, p, exact=False)
            check(lambda p: run(p, check=True), p, exact=False)
        except BaseException as e:
            raise AssertionError(f"seed {seed}:\n{p}") from e
