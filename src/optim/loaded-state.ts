import type { Pool } from '../graph/memory/pool.ts'
import type { Bucket } from '../graph/trace/bucket.ts'
import type { Parameter } from '../graph/trace/parameter.ts'
import { clipped } from '../util/clipped.ts'
import { TabringError } from '../util/errors.ts'
import type { StateEntry, StateTensor } from './state-dict.ts'

/** What was loaded for a parameter. */
export interface LoadedState {
  readonly steps: number
  readonly tensors: Readonly<Record<string, StateTensor>>
}

/** The tensors of a saved entry, without its numbers. */
export function tensorsOf({ step: _, ...entry }: StateEntry): Record<string, StateTensor> {
  const tensors: Record<string, StateTensor> = {}
  for (const [name, value] of Object.entries(entry)) {
    if (value !== null && typeof value === 'object') tensors[name] = value
  }
  return tensors
}

/** The steps that all these parameters have made in a loaded state. errors: `graph.misuse` where they differ. */
export function commonSteps(
  parameters: readonly Parameter[],
  loaded: ReadonlyMap<Parameter, LoadedState>,
): number {
  const stepsOf = (parameter: Parameter) => loaded.get(parameter)?.steps ?? 0
  const [first] = parameters
  const other = parameters.find((parameter) => stepsOf(parameter) !== stepsOf(first))
  if (other) {
    throw new TabringError(
      'graph.misuse',
      `loadStateDict: the compiled step updates "${clipped(first.name)}" and "${clipped(other.name)}" together, so their step counts must agree, got ${stepsOf(first)} and ${stepsOf(other)}. Load the state before compiling.`,
    )
  }
  return stepsOf(first)
}

/** A state of the whole bucket, of which each rank's pool has a slice. */
export async function wholeState(bucket: Bucket, pool: Pool): Promise<Float32Array<ArrayBuffer>> {
  const own = (await pool.read()) as Float32Array<ArrayBuffer>
  const { exchange } = bucket.parameters[0]
  if (!exchange || exchange.size === 1) return own
  const whole = new Float32Array(bucket.wireElements)
  whole.set(own, bucket.ownSlice(exchange).start)
  await exchange.gather(whole)
  return whole
}
