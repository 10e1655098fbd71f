"""`tvm.error`: errors by the name that classic programs catch them by."""

from tensorlang.errors import TensorlangError

TVMError = TensorlangError
