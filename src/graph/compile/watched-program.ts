import { StagedTensor } from '../../gpu/staging.ts'
import { clipped } from '../../util/clipped.ts'
import { TabringError } from '../../util/errors.ts'
import { oneAtATime } from '../../util/next-task.ts'
import { shareFindings } from '../inside/anomaly-report.ts'
import type { AnyRuntime } from '../memory/runtime.ts'
import { noteOnAllRanks } from '../plan/agreement.ts'
import type { InputTypes, TracedFunction } from '../plan/prepare.ts'
import { copyInputs, type RunInputs, type StepProgram } from '../plan/step-program.ts'
import { nextRandomStep, randomScalarNames } from '../trace/random.ts'
import { gradientWeight } from '../trace/trace.ts'
import { detectAnomaly } from './detect-anomaly.ts'
import { noteRefusedRun } from './failing-together.ts'

/**
 * Makes each run of the program wait for a look at the same step, which ends it before it changes anything.
 *
 * With several ranks all of them end such a run with the same error, which has the findings of each: they make runs in the same order and number.
 */
export function withAnomalyDetection<Program extends StepProgram>(
  program: Program,
  runtime: AnyRuntime,
  fn: TracedFunction,
  types: InputTypes,
): Program {
  const run = program.run.bind(program)
  const { step } = randomScalarNames
  const drawsMasks = program.prepared.trace.scalars.has(step)
  const inTurn = oneAtATime()
  program.run = async (inputs, scalars = {}) => {
    program.check(inputs, scalars)
    if (program.prepared.trace.exchange?.uneven) throw checkInJoin()
    const own = copyInputs(inputs, Object.keys(types))
    refuseStaged(own)
    const settings = { ...scalars }
    return inTurn(async () => {
      // What a run counts for in an accumulation is no scalar of the plain step.
      const { [gradientWeight]: _weight, ...given } = settings
      const asked = drawsMasks ? { [step]: nextRandomStep(), ...given } : given
      const error = await findingOf(() => detectAnomaly(runtime, fn, types, own, asked))
      const { exchange } = program.prepared.trace
      const all =
        exchange && exchange.size > 1
          ? (await shareFindings((text) => exchange.gatherTexts(text), error?.message))?.error
          : error
      if (all) {
        noteRefusedRun(all)
        throw noteOnAllRanks(all)
      }
      return run(own, settings)
    })
  }
  return program
}

/** Ranks exchange what they found, and those without batches would not take part. */
const checkInJoin = () =>
  new TabringError(
    'graph.misuse',
    'join: this step was compiled with detectAnomaly, which checks all ranks together. Compile it without, or run the same number of batches on all ranks outside of join.',
  )

async function findingOf(check: () => Promise<void>): Promise<TabringError | undefined> {
  try {
    await check()
  } catch (error) {
    if (error instanceof TabringError && error.code === 'train.nan') return error
    throw error
  }
  return undefined
}

/** Refuses uploaded inputs: they belong to one run, and here there are two. */
function refuseStaged(inputs: RunInputs): void {
  for (const [name, data] of Object.entries(inputs)) {
    if (!(data instanceof StagedTensor)) continue
    throw new TabringError(
      'graph.misuse',
      `detectAnomaly: input "${clipped(name)}" is in upload memory, which only one run can use. Pass an array, or turn pinMemory off.`,
    )
  }
}
