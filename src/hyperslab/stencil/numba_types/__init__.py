"""What numba is taught: values of cells, a cell with its neighbours, and blocks of them.

Importing a module of this package imports numba, so only `hyperslab.stencil.compiled` does, when it compiles.
"""
