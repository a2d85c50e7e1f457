import { StagedTensor } from '../gpu/staging.ts'
import { TabringError } from '../util/errors.ts'
import { runEagerly } from './eager.ts'
import { formatCall } from './limits.ts'
import { isNotFinite, type OnNode } from './look.ts'
import type { InputTypes, TracedFunction } from './prepare.ts'
import { nextRandomStep, randomScalarNames } from './random.ts'
import type { AnyRuntime } from './runtime.ts'
import { copyInputs, type RunInputs, type StepProgram } from './step-program.ts'
import { gradientWeight } from './trace.ts'
import { type GraphValue, storageOf } from './value.ts'

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
  runtime: AnyRuntime,
  fn: TracedFunction,
  types: InputTypes,
  inputs: RunInputs,
  scalars: Readonly<Record<string, number>> = {},
): Promise<void> {
  const clean = new Set<GraphValue>()
  const onNode: OnNode = async (node, look) => {
    const where = formatCall({ node })
    for (const [at, value] of node.inputs.entries()) {
      // What the op itself changes in place is its result by now.
      if (node.op.updates?.includes(at)) continue
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

/** Makes each run of the program wait for a look at the same step, which ends it before it changes anything. */
export function withAnomalyDetection<Program extends StepProgram>(
  program: Program,
  runtime: AnyRuntime,
  fn: TracedFunction,
  types: InputTypes,
): Program {
  const run = program.run.bind(program)
  const { step } = randomScalarNames
  const drawsMasks = program.prepared.trace.scalars.has(step)
  let last: Promise<unknown> = Promise.resolve()
  program.run = async (inputs, scalars = {}) => {
    program.check(inputs, scalars)
    const own = copyInputs(inputs, Object.keys(types))
    refuseStaged(own)
    const settings = { ...scalars }
    const looked = last.then(async () => {
      // What a run counts for in an accumulation is no scalar of the plain step.
      const { [gradientWeight]: _weight, ...given } = settings
      const asked = drawsMasks ? { [step]: nextRandomStep(), ...given } : given
      await detectAnomaly(runtime, fn, types, own, asked)
      return run(own, settings)
    })
    last = looked.catch(() => undefined)
    return looked
  }
  return program
}

/** What was uploaded belongs to one run, and here there are two. */
function refuseStaged(inputs: RunInputs): void {
  for (const [name, data] of Object.entries(inputs)) {
    if (!(data instanceof StagedTensor)) continue
    throw new TabringError(
      'graph.misuse',
      `detectAnomaly: input "${name}" must be an array, got upload memory, which one run uses up. Turn pinMemory off.`,
    )
  }
}
