import { hashOf, SettingsConsistency } from '../../graph/trace/settings-check.ts'
import { gradientWeight, type Trace } from '../../graph/trace/trace.ts'
import { PeerError } from '../../util/errors.ts'
import { firstDifference } from '../../util/first-difference.ts'

/** Elements of an input that a step looks at, evenly spaced. */
const maxElements = 2 ** 14

/**
 * What must be equal on ranks that divide layers in the step that begins, since each computes the layers that are whole: the samples, and the
 * step's scalars, which decide the masks of dropout too.
 *
 * cost: a hash of 16,384 elements of each input, which the host has; nothing of inputs in upload memory.
 */
export function samplesOf({ scalars, given }: Trace): SettingsConsistency {
  const named = scalars.names.filter((name) => name !== gradientWeight)
  const inputs = [...(given ?? [])].flatMap(([name, data]) =>
    data ? [[`hash of input "${name}"`, hashOf(elementsOf(data))] as const] : [],
  )
  const samples = new SettingsConsistency()
  const numbers = named.map((name) => [name, scalars.valueOf(name)] as const)
  samples.add({ of: 'of this step', read: () => [...numbers, ...inputs] })
  samples.note(new Float32Array())
  return samples
}

function* elementsOf(data: ArrayLike<number>): Generator<number> {
  const apart = Math.max(1, data.length / maxElements)
  for (let at = 0; at < data.length; at += apart) yield data[Math.floor(at)]
}

/** `received`: what each rank says of the samples. */
export function samplesError(
  received: readonly (readonly string[])[],
  ranks: readonly number[],
): PeerError {
  const difference = firstDifference(received, 'nothing', ranks)
  return new PeerError(
    'peer.mismatch',
    `parallelizeModule: ranks that divide layers must see the same samples and step scalars, and drop the same elements, but have ${difference?.text ?? 'others'}. The ranks would train different models, so nothing was updated. Pass the same inputs and scalars, call manualSeed with the same number, and run the same steps on all ranks.`,
  )
}
