"""HDF5 and NetCDF-4 files, read in place by a parser that no file can crash."""
