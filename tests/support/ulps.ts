import { specialFunctions } from '../../src/kernels/special-functions.ts'
import { type ScalarFunctionName, scalarFunctions, stepsToWgsl } from '../../src/kernels/steps.ts'
import { runKernel } from './run-kernel.ts'

/** Distance in units of the last place of the float that is nearest to `of`. */
export function ulps(got: number, exact: number, of = exact): number {
  const rounded = Math.abs(Math.fround(of))
  const unit = 2 ** Math.max(-149, Math.floor(Math.log2(rounded || 2 ** -149)) - 23)
  return Math.abs(got - exact) / unit
}

/** Arguments beside the inputs: before them, and after them. */
const besides: { readonly [Fn in ScalarFunctionName]?: readonly [number[], number[]] } = {
  softplus: [[], [1, 80]],
  bceLogits: [[], [0]],
  bceLogitsWeighted: [[], [0, 3]],
  ...{ geluGrad: [[1], []], geluTanhGrad: [[1], []], siluGrad: [[1], []] },
}

/**
 * The largest error of an elementwise function on the device cpu at those of `inputs` for which `holds`, in units of the last place.
 *
 * Gradients are those where the result's is 1, binary cross entropies those of the target 0.
 * `unitAt`: the number whose last place is the unit. Infinity where a result that is not finite differs. At most 500,000 inputs.
 */
export function worstUlps(
  fn: ScalarFunctionName,
  inputs: Float32Array<ArrayBuffer>,
  holds: (x: number) => boolean = () => true,
  unitAt = (_: number, exact: number) => exact,
): number {
  const [before, after] = besides[fn] ?? [[], []]
  const constants = (values: readonly number[]) => values.map((constant) => ({ constant }))
  const args = [...constants(before), { input: 0 }, ...constants(after)]
  const { lines, result } = stepsToWgsl([{ fn, args }], ['a'])
  const own = `fn own(a: f32) -> f32 {\n${[...lines, `return ${result};`].join('\n')}\n}`
  const wgsl = `
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
${specialFunctions(own)}${own}
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) at: vec3<u32>) {
  if (at.x >= ${inputs.length}u) { return; }
  y[at.x] = own(x[at.x]);
}`
  const outputs = new Float32Array(inputs.length)
  const [, y] = runKernel(wgsl, [inputs, outputs], [Math.ceil(inputs.length / 64), 1])
  let worst = 0
  for (const [i, x] of inputs.entries()) {
    const exact = scalarFunctions[fn].reference(...before, x, ...after)
    const rounded = Math.fround(exact)
    if (!Number.isFinite(rounded)) {
      if (!Object.is(y[i], rounded)) return Number.POSITIVE_INFINITY
    } else if (holds(x)) worst = Math.max(worst, ulps(y[i], exact, unitAt(x, exact)))
  }
  return worst
}
