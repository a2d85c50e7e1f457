// y = scalars[SLOT]
// scalars: the step's scalars   y: []
// One invocation copies the one value.

@compute @workgroup_size(1)
fn main() {
  y[0] = scalars[SLOT];
}
