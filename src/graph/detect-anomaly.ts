import { TabringError } from '../util/errors.ts'
import { runEagerly } from './eager.ts'
import { formatCall } from './limits.ts'
import type { InputTypes, TracedFunction } from './prepare.ts'
import type { Runtime } from './runtime.ts'
import type { HostData, RunInputs } from './step-program.ts'
import { type GraphNode, type GraphValue, storageOf } from './value.ts'

const isNotFinite = (data: HostData): boolean =>
  data instanceof Float32Array && data.some((value) => !Number.isFinite(value))

/** What to call a value that no op made. */
function nameOf(value: GraphValue): string | undefined {
  const { leaf } = storageOf(value)
  if (leaf?.kind === 'input') return `input "${leaf.name}"`
  if (leaf?.kind === 'parameter') return `parameter "${leaf.parameter.name}"`
  if (leaf?.kind === 'buffer') return `buffer "${leaf.buffer.name}"`
  return undefined
}

/**
 * Runs a function once, op by op without rewrites, and rejects at the first op whose result is not finite.
 *
 * Parameters are not updated. Every result comes to the host, so this takes many times a step's time: for finding where a NaN comes from,
 * as torch.autograd.detect_anomaly.
 * With several ranks it looks at what this rank's samples lead to and sends nothing, so any rank may call it alone, between steps.
 * A function with random masks needs those of the failing run: give its `randomStep` (`randomScalarNames`) among `scalars`.
 * errors: `graph.misuse` for random masks without it; `train.nan`, naming the op with its shapes, or the parameter or input that is not finite already.
 */
export async function detectAnomaly(
  runtime: Runtime,
  fn: TracedFunction,
  types: InputTypes,
  inputs: RunInputs,
  scalars: Readonly<Record<string, number>> = {},
): Promise<void> {
  const clean = new Set<GraphValue>()
  const onNode = async (node: GraphNode, look: (value: GraphValue) => Promise<HostData>) => {
    const where = formatCall({ node })
    for (const value of node.inputs) {
      const root = storageOf(value)
      const name = nameOf(value)
      if (!name || clean.has(root)) continue
      clean.add(root)
      if (isNotFinite(await look(root))) {
        throw new TabringError(
          'train.nan',
          `${where}: expected finite arguments, got ${name} with values that are not. ${name.startsWith('input') ? 'Check the data.' : 'An earlier step made it so: lower the learning rate, or clip gradients.'}`,
        )
      }
    }
    for (const value of node.outputs) {
      if (!isNotFinite(await look(value))) continue
      throw new TabringError(
        'train.nan',
        `${where}: expected a finite result, got values that are not, from finite arguments. Lower the learning rate, clip gradients, or keep the arguments in the op's range.`,
      )
    }
    if (node.op.updates?.length) for (const value of node.inputs) clean.delete(storageOf(value))
  }
  await runEagerly(runtime, fn, types, inputs, scalars, {
    isNaive: true,
    isUpdating: false,
    onNode,
  })
}
