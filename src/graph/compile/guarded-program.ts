import { TabringError } from '../../util/errors.ts'
import { checkNamed, type StepProgram } from '../plan/step-program.ts'

/** Makes the program's methods work without it, as in `const { run } = program`, and refuse calls after `destroy`. */
export function guarded<Program extends StepProgram>(program: Program): Program {
  const { run, shadow, check, destroy } = program
  let isDestroyed = false
  const begin = (where: string) => {
    if (!isDestroyed) return
    throw new TabringError(
      'graph.misuse',
      `${where}: the program was destroyed. Compile the function again, or destroy it later.`,
    )
  }
  program.run = async (inputs, scalars) => {
    begin('run')
    checkNamed(inputs, scalars)
    return run.call(program, inputs, scalars)
  }
  program.shadow = async (scalars) => {
    begin('shadow')
    return shadow.call(program, scalars)
  }
  program.check = (inputs, scalars) => {
    begin('check')
    checkNamed(inputs, scalars)
    check.call(program, inputs, scalars)
  }
  program.destroy = () => {
    if (!isDestroyed) destroy.call(program)
    isDestroyed = true
  }
  return program
}
