import type { TabringError } from '../../util/errors.ts'
import type { HostData, RunInputs, RunOutputs, StepProgram } from '../plan/step-program.ts'
import type { GraphValue } from '../trace/value.ts'

/** A value that every run brings to the host, because the run may have to end with an error for it. */
export interface OutputCheck {
  /** Its name among the outputs, which callers do not see. */
  readonly name: string
  readonly value: GraphValue
  refuse(data: HostData): TabringError | undefined
}

/** Takes the checked values out of a run's outputs. errors: those of the checks. */
export function passChecks(checks: readonly OutputCheck[], outputs: RunOutputs): RunOutputs {
  for (const { name, refuse } of checks) {
    const error = refuse(outputs[name])
    if (error) throw error
    delete outputs[name]
  }
  return outputs
}

/** Makes the program's runs end with the errors of its checks. */
export function withChecks<Program extends StepProgram>(program: Program): Program {
  const { checks } = program.prepared.trace
  if (checks.length === 0) return program
  const run = program.run.bind(program)
  program.run = async (inputs: RunInputs, scalars?: Readonly<Record<string, number>>) =>
    passChecks(checks, await run(inputs, scalars))
  return program
}
