import type { Runtime } from '../graph/memory/runtime.ts'
import { prepareLowering, repeatsFor } from '../graph/tune/prepare-lowering.ts'
import { dispatch, writes } from '../kernels/shader.ts'
import { tensorType } from '../util/shape.ts'

/** Chains that do not wait for each other, of four lanes each: more than any GPU's latency of an addition. */
const chains = 8
const unrolled = 4
const workgroup = 256
const samples = 5

/**
 * The most multiply-adds in f32 that this adapter was seen to do, as GFLOP/s, one counting two operations.
 *
 * Every invocation turns independent chains of fma over vec4 in registers and writes one number; the best of five runs counts.
 */
export async function measureFmaPeak(runtime: Runtime, signal?: AbortSignal): Promise<number> {
  const { isSoftware } = runtime.facts
  const groups = isSoftware ? 64 : 4096
  const rounds = isSoftware ? 64 : 256
  const names = Array.from({ length: chains }, (_, i) => `a${i}`)
  const body = `@compute @workgroup_size(${workgroup})
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  let x = vec4<f32>(f32(id.x)) * vec4<f32>(1e-7, 2e-7, 3e-7, 4e-7);
  let m = vec4<f32>(0.5) + x;
${names.map((name, i) => `  var ${name} = x + vec4<f32>(${i}.0);`).join('\n')}
  for (var round = 0u; round < ROUNDS; round++) {
${Array.from({ length: unrolled }, () => names.map((name) => `    ${name} = fma(${name}, m, x);`).join('\n')).join('\n')}
  }
  let sum = ${names.join(' + ')};
  y[id.x] = sum.x + sum.y + sum.z + sum.w;
}
`
  const count = groups * workgroup
  const lowering = {
    dispatches: [
      dispatch({
        label: 'fma peak',
        bindings: [writes('y', { out: 0 })],
        constants: { ROUNDS: rounds },
        body,
        groups: [groups, 1, 1],
      }),
    ],
  }
  const call = { inputs: [], outputs: [tensorType([count])], attrs: {} }
  const prepared = await prepareLowering(runtime, lowering, call)
  try {
    const times = await repeatsFor(prepared, 20)
    let min = Number.POSITIVE_INFINITY
    for (let i = 0; i < samples; i++) {
      signal?.throwIfAborted()
      min = Math.min(min, (await prepared.run(times)) / times)
    }
    const written = new Float32Array(await prepared.read(0))
    if (!written.every(Number.isFinite)) throw new Error('fma peak: the kernel did not run')
    return (2 * 4 * chains * unrolled * rounds * count) / min / 1e6
  } finally {
    prepared.destroy()
  }
}
