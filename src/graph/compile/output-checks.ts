import type { RunInputs, RunOutputs, StepProgram } from '../plan/step-program.ts'
import type { OutputCheck } from '../trace/trace.ts'

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
