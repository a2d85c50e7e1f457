import type { Lowering, OpCall } from '../../kernels/op.ts'
import type { Runtime } from '../memory/runtime.ts'
import { prepareLowering } from './prepare-lowering.ts'

/** A sample lasts at least this long, because clocks of pages are coarse. */
const sampleMs = 2
const samples = 3
const maxRepeats = 256

/**
 * The milliseconds that one execution of a lowering takes on this device: the least of three samples of at least 2 ms each.
 *
 * Tensors are zeros, whose values do not matter to these kernels' time. Makes and frees buffers: not for the step's path.
 */
export async function timeLowering(
  runtime: Runtime,
  lowering: Lowering,
  call: OpCall,
): Promise<number> {
  const prepared = await prepareLowering(runtime, lowering, call)
  let repeats = 1
  while ((await prepared.run(repeats)) < sampleMs && repeats < maxRepeats) repeats *= 2
  let min = Number.POSITIVE_INFINITY
  for (let i = 0; i < samples; i++) min = Math.min(min, (await prepared.run(repeats)) / repeats)
  prepared.destroy()
  return min
}
