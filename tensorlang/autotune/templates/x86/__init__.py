"""TVM's templates for x86 CPUs: names, knobs and loops as there, so that its logs mean something here.

The programs are those of tensorlang.topi, whatever the knobs say: where TVM tunes arrays that are packed ahead, in
blocks of the size that a knob says, the schedule packs (a copy, and `transform_layout`). Where a form of
`tensorlang.schedules` has these loops, the template is that form with the sizes of its knobs.
"""
