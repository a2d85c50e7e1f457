import type { Bucket } from '../graph/trace/bucket.ts'
import type { Parameter } from '../graph/trace/parameter.ts'
import type { Trace } from '../graph/trace/trace.ts'
import { clipped } from '../util/clipped.ts'
import { TabringError } from '../util/errors.ts'
import { requireParameters } from './check-params.ts'

/** An optimizer, as far as its buckets are asked for. */
interface BucketOwner {
  fillUnused(trace: Trace): void
  bucketsOfStep(trace: Trace, what: string): Bucket[]
}

/** Which optimizer updates a parameter; the last one that was given it. */
export const owners = new WeakMap<Parameter, BucketOwner>()

/**
 * The buckets of the step being compiled that hold these parameters' gradients; parameters without a gradient are passed over.
 *
 * errors: `graph.misuse` when no optimizer has them, or a bucket holds others too.
 */
export function bucketsBehind(
  parameters: readonly Parameter[],
  trace: Trace,
  what: string,
): Bucket[] {
  requireParameters(what, parameters)
  for (const owner of new Set(parameters.map((parameter) => owners.get(parameter)))) {
    owner?.fillUnused(trace)
  }
  const wanted = new Set(parameters.filter((parameter) => trace.gradients.has(parameter)))
  if (wanted.size === 0) throw noGradient(what, parameters, trace)
  const optimizers = new Set<BucketOwner>()
  for (const parameter of wanted) {
    const owner = owners.get(parameter)
    if (!owner) {
      throw new TabringError(
        'graph.misuse',
        `${what}: "${clipped(parameter.name)}" belongs to no optimizer. Create the optimizer first.`,
      )
    }
    optimizers.add(owner)
  }
  const buckets = [...optimizers]
    .flatMap((optimizer) => optimizer.bucketsOfStep(trace, what))
    .filter((bucket) => bucket.parameters.some((parameter) => wanted.has(parameter)))
  for (const bucket of buckets) {
    const other = bucket.parameters.find((parameter) => !wanted.has(parameter))
    if (other) {
      throw new TabringError(
        'graph.misuse',
        `${what}: all parameters of a group must be passed together, but "${clipped(other.name)}" is missing. Pass them all, or put the ones you want into a separate group.`,
      )
    }
  }
  return buckets
}

/** The error for parameters without a gradient: none has one yet, or no longer, or others have. */
export function noGradient(
  what: string,
  parameters: readonly Parameter[],
  { reached }: Trace,
): TabringError {
  const [first] = reached
  const problem = !parameters.length
    ? 'parameters must be those of a model, got an empty list. Pass model.parameters().'
    : !first
      ? 'no parameter has a gradient. Call loss.backward() first, in the same function.'
      : parameters.some((parameter) => reached.has(parameter))
        ? 'no parameter has a gradient any more. Call zeroGrad() before loss.backward(), not after it.'
        : `the loss depends on none of these ${parameters.length} parameters, but on others, as ${first.title}. Pass the parameters of the model that computes the loss.`
  return new TabringError('graph.misuse', `${what}: ${problem}`)
}
