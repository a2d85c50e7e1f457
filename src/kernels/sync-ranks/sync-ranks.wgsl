// y = this rank's part of x, with zeros around it where the others' parts lie; the program then writes what the ranks make together over it.
// x: COUNT elements from SOURCE on   y: [TOTAL], the same from TARGET on

fn element(at: u32) -> f32 {
  var value = 0.0;
  if (at >= TARGET && at < TARGET + COUNT) { value = x[SOURCE + at - TARGET]; }
  return value;
}
