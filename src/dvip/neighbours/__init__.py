"""The paper's neighbours: other ways to infer functions, in the same frame. One file a method."""
