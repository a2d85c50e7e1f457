import { TabringError } from '../../util/errors.ts'
import { hasNan, isNotFinite, type OnNode, type ReadValue } from '../inside/probe.ts'
import type { AnyRuntime } from '../memory/runtime.ts'
import type { InputTypes, TracedFunction } from '../plan/prepare.ts'
import type { RunInputs } from '../plan/step-program.ts'
import { formatCall } from '../trace/format-call.ts'
import { type GraphValue, storageOf } from '../trace/value.ts'
import { runEagerly } from './eager.ts'

/** Names a value that no op made. */
function nameOf(value: GraphValue): string | undefined {
  const { leaf } = storageOf(value)
  if (leaf?.kind === 'input') return `input "${leaf.name}"`
  if (leaf?.kind === 'parameter') return `parameter ${leaf.parameter.title}`
  if (leaf?.kind === 'buffer') return `buffer ${leaf.buffer.title}`
  return undefined
}

export interface AnomalyOptions {
  /** True if infinite values always count as an anomaly, not only if they lead to NaN or an infinite output; default false. */
  readonly checkInfinite?: boolean
}

/**
 * Runs a function once, op by op without rewrites, and rejects at the first op that produces NaN, like torch.autograd.detect_anomaly.
 *
 * Infinite values may be intended, as in a mask. They are reported if an op turns them into NaN, or if an output of one element is
 * infinite; the error then names the op that produced them. As in PyTorch, the cause may be a loss scale that the scaler would have halved:
 * start with a smaller one. Nothing changes: no parameter, no buffer of a module.
 * Every result is copied to the host, so this takes many times as long as a step.
 * With several ranks it checks this rank's samples and sends nothing, so any rank may call it alone, between steps.
 * A function with random masks needs those of the failing run: pass its `randomStep` (`randomScalarNames`) in `scalars`.
 * errors: `graph.misuse` for random masks without it, and for a model that ranks or devices divide; `train.nan`, naming the op with its shapes,
 * or the parameter or input that is already not finite.
 */
export async function detectAnomaly(
  runtime: AnyRuntime,
  fn: TracedFunction,
  types: InputTypes,
  inputs: RunInputs,
  scalars: Readonly<Record<string, number>> = {},
  { checkInfinite = false }: AnomalyOptions = {},
): Promise<void> {
  const search = new Search(checkInfinite)
  const outputs = await runEagerly(runtime, fn, types, inputs, scalars, {
    useNaiveKernels: true,
    allowUpdates: false,
    onNode: search.onNode,
  })
  for (const [name, data] of Object.entries(outputs)) {
    if (data.length === 1 && isNotFinite(data)) throw search.endsIn(name)
  }
}

/** Where values that are not finite came from, along a run. */
class Search {
  readonly #checkInfinite: boolean
  /** Values that no op made and that are known to hold no NaN. */
  readonly #clean = new Set<GraphValue>()
  /** Where the infinite values in a value came from: an op with its shapes, or a name. */
  readonly #origins = new Map<GraphValue, { readonly where: string; readonly isOp: boolean }>()
  #first: string | undefined

  constructor(checkInfinite: boolean) {
    this.#checkInfinite = checkInfinite
  }

  readonly onNode: OnNode = async (node, readValue, trace) => {
    const where = formatCall(node, trace)
    for (const [at, value] of node.inputs.entries()) {
      // What the op itself changes in place is its result by now.
      if (!node.op.updates?.includes(at)) await this.#checkLeaf(where, value, readValue)
    }
    const origin = node.inputs.map((value) => this.#origins.get(storageOf(value))).find(Boolean)
    for (const value of node.outputs) {
      const data = await readValue(value)
      if (!isNotFinite(data)) continue
      if (hasNan(data) || this.#checkInfinite) {
        if (!origin) throw madeBy(where, 'although its arguments are')
        throw origin.isOp
          ? madeBy(origin.where, `and ${where} turns it into NaN`)
          : given(where, origin.where)
      }
      this.#first ??= where
      this.#origins.set(storageOf(value), origin ?? { where, isOp: true })
    }
    for (const at of node.op.updates ?? []) {
      this.#clean.delete(storageOf(node.inputs[at]))
      this.#origins.delete(storageOf(node.inputs[at]))
    }
  }

  /** The error for an output that is infinite, though no op made NaN. */
  endsIn(name: string): TabringError {
    return madeBy(this.#first ?? `output "${name}"`, `and output "${name}" depends on it`)
  }

  async #checkLeaf(where: string, value: GraphValue, readValue: ReadValue): Promise<void> {
    const root = storageOf(value)
    const name = nameOf(value)
    if (!name || this.#clean.has(root)) return
    this.#clean.add(root)
    const data = await readValue(root)
    if (hasNan(data) || (this.#checkInfinite && isNotFinite(data))) throw given(where, name)
    if (isNotFinite(data)) this.#origins.set(root, { where: name, isOp: false })
  }
}

const madeBy = (where: string, and: string): TabringError =>
  new TabringError(
    'train.nan',
    `${where}: the result is not finite, ${and}. Lower the learning rate, clip gradients, or keep the arguments in the op's range.`,
  )

const given = (where: string, name: string): TabringError =>
  new TabringError(
    'train.nan',
    `${where}: expected finite arguments, but ${name} has values that are not finite. ${name.startsWith('input') ? 'Check the data.' : 'An earlier step caused this: lower the learning rate, or clip gradients.'}`,
  )
