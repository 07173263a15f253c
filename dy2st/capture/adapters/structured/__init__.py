"""Adapters of matrices by their structure, and of messages along the edges of graphs."""

from dy2st.capture.adapters.structured import graphs, matrices

__all__ = ["graphs", "matrices"]
