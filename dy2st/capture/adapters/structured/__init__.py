"""Adapters of matrices by their structure, messages along the edges of graphs, and elements that
data selects.
"""

from dy2st.capture.adapters.structured import graphs, matrices, selection

__all__ = ["graphs", "matrices", "selection"]
