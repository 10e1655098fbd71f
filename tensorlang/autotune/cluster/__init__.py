"""Measuring on a Dask cluster, whose workers declare the device that they measure as a resource."""
