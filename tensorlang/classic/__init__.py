"""What classic programs call beside te and the tuners: `topi.utils`, `topi.testing`, `topi.x86`, `contrib`, ..."""
