import { TabringError } from '../../util/errors.ts'
import { hasNan, isNotFinite, type Look, type OnNode } from '../inside/probe.ts'
import type { AnyRuntime } from '../memory/runtime.ts'
import type { InputTypes, TracedFunction } from '../plan/prepare.ts'
import type { RunInputs } from '../plan/step-program.ts'
import { formatCall } from '../trace/format-call.ts'
import { type GraphValue, storageOf } from '../trace/value.ts'
import { runEagerly } from './eager.ts'

/** What to call a value that no op made. */
function nameOf(value: GraphValue): string | undefined {
  const { leaf } = storageOf(value)
  if (leaf?.kind === 'input') return `input "${leaf.name}"`
  if (leaf?.kind === 'parameter') return `parameter "${leaf.parameter.name}"`
  if (leaf?.kind === 'buffer') return `buffer "${leaf.buffer.name}"`
  return undefined
}

export interface AnomalyOptions {
  /** Whether infinite values are an anomaly wherever they arise, and not only where NaN or an infinite number comes of them; default false. */
  readonly checkInfinite?: boolean
}

/**
 * Runs a function once, op by op without rewrites, and rejects at the first op that makes NaN, as torch.autograd.detect_anomaly.
 *
 * Infinite values may be meant, as in a mask: they are told of where an op makes NaN of them, or where an output of one element is infinite;
 * then the op is named that they came from. As in PyTorch that may be a loss scale which the scaler would have halved: begin with a smaller
 * one. Nothing is changed: no parameter, no buffer of a module.
 * Every result comes to the host, so this takes many times a step's time.
 * With several ranks it looks at what this rank's samples lead to and sends nothing, so any rank may call it alone, between steps.
 * A function with random masks needs those of the failing run: give its `randomStep` (`randomScalarNames`) among `scalars`.
 * errors: `graph.misuse` for random masks without it; `train.nan`, naming the op with its shapes, or the parameter or input that is not finite already.
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
    isNaive: true,
    isUpdating: false,
    onNode: search.onNode,
  })
  for (const [name, data] of Object.entries(outputs)) {
    if (data.length === 1 && isNotFinite(data)) throw search.endsIn(name)
  }
}

/** Where values that are not finite came from, along a run. */
class Search {
  readonly #checkInfinite: boolean
  /** What is known to hold no NaN, of what no op made. */
  readonly #clean = new Set<GraphValue>()
  /** Where the infinite values in a value came from: an op with its shapes, or a name. */
  readonly #origins = new Map<GraphValue, { readonly where: string; readonly isOp: boolean }>()
  #first: string | undefined

  constructor(checkInfinite: boolean) {
    this.#checkInfinite = checkInfinite
  }

  readonly onNode: OnNode = async (node, look, trace) => {
    const where = formatCall(node, trace)
    for (const [at, value] of node.inputs.entries()) {
      // What the op itself changes in place is its result by now.
      if (!node.op.updates?.includes(at)) await this.#lookAtLeaf(where, value, look)
    }
    const origin = node.inputs.map((value) => this.#origins.get(storageOf(value))).find(Boolean)
    for (const value of node.outputs) {
      const data = await look(value)
      if (!isNotFinite(data)) continue
      if (hasNan(data) || this.#checkInfinite) {
        if (!origin) throw madeBy(where, 'from finite arguments')
        throw origin.isOp
          ? madeBy(origin.where, `of which ${where} makes NaN`)
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
    return madeBy(this.#first ?? `output "${name}"`, `which output "${name}" comes of`)
  }

  async #lookAtLeaf(where: string, value: GraphValue, look: Look): Promise<void> {
    const root = storageOf(value)
    const name = nameOf(value)
    if (!name || this.#clean.has(root)) return
    this.#clean.add(root)
    const data = await look(root)
    if (hasNan(data) || (this.#checkInfinite && isNotFinite(data))) throw given(where, name)
    if (isNotFinite(data)) this.#origins.set(root, { where: name, isOp: false })
  }
}

const madeBy = (where: string, and: string): TabringError =>
  new TabringError(
    'train.nan',
    `${where}: expected a finite result, got values that are not, ${and}. Lower the learning rate, clip gradients, or keep the arguments in the op's range.`,
  )

const given = (where: string, name: string): TabringError =>
  new TabringError(
    'train.nan',
    `${where}: expected finite arguments, got ${name} with values that are not. ${name.startsWith('input') ? 'Check the data.' : 'An earlier step made it so: lower the learning rate, or clip gradients.'}`,
  )
