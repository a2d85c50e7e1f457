import { TabringError } from '../../util/errors.ts'
import { oneAtATime } from '../../util/next-task.ts'
import { copyInputs, type StepProgram } from '../plan/step-program.ts'
import type { GradientExchange } from '../trace/exchange.ts'
import { gradientWeight } from '../trace/trace.ts'

/**
 * Makes runs inside `join` announce themselves to the other ranks, so that those without a batch take part; they run one after the other.
 *
 * errors: `graph.misuse` for micro-steps in which ranks synchronize: those without a batch do not know of them.
 */
export function withUneven<Program extends StepProgram>(
  program: Program,
  exchange: GradientExchange,
  number: number,
): Program {
  const { trace, syncPoints, inputs: types } = program.prepared
  const isMicroStep = trace.accumulation?.part === 'add'
  exchange.compiling.programs.set(number, program)
  const run = program.run.bind(program)
  const inTurn = oneAtATime()
  program.run = async (inputs, scalars = {}) => {
    const { uneven } = exchange
    if (!uneven) return run(inputs, scalars)
    if (isMicroStep) {
      if (syncPoints.length === 0) return run(inputs, scalars)
      throw new TabringError(
        'graph.misuse',
        'join: synchronized batch normalization does not work in gradient accumulation inside join. Use one of the two without the other.',
      )
    }
    program.check(inputs, scalars)
    const own = copyInputs(inputs, Object.keys(types))
    const given = { ...scalars }
    return inTurn(async () => {
      const { [gradientWeight]: asked } = given
      const weight = await uneven.begin(program, asked ?? 1 / exchange.size)
      // What a run does not say, ranks find out as they exchange.
      return run(own, asked === undefined ? given : { ...given, [gradientWeight]: weight })
    })
  }
  return program
}
