"""The CMake package of an exported kernel: `find_package(NAME CONFIG)`, then link to `NAME::NAME`."""

from __future__ import annotations

from collections.abc import Sequence

_TEXT = """\
# The kernel {name}: target_link_libraries(program {name}::{name})
get_filename_component(_{name}_folder "${{CMAKE_CURRENT_LIST_FILE}}" PATH)
if(NOT TARGET {name}::{name})
  add_library({name}::{name} STATIC IMPORTED)
  set_target_properties({name}::{name} PROPERTIES
    IMPORTED_LOCATION "${{_{name}_folder}}/{name}.a"
    IMPORTED_LINK_INTERFACE_LANGUAGES C
    INTERFACE_INCLUDE_DIRECTORIES "${{_{name}_folder}}"
    INTERFACE_LINK_LIBRARIES "{libraries}")
endif()
"""


def config(name: str, libraries: Sequence[str]) -> str:
    """The text of NAMEConfig.cmake, which stands beside NAME.a and NAME.h."""
    return _TEXT.format(name=name, libraries=";".join(libraries))
