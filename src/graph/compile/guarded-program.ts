import { TabringError } from '../../util/errors.ts'
import { refuseExtra } from '../../util/plain-callers.ts'
import type { InputTypes } from '../plan/prepare.ts'
import { refuseSurplus, type StepProgram } from '../plan/step-program.ts'

/**
 * Makes the program's methods work without it, as in `const { run } = program`, and refuse inputs that `types` does not have, and calls
 * and runs after `destroy`.
 */
export function guarded<Program extends StepProgram>(program: Program, types: InputTypes): Program {
  const { run, shadow, check, destroy } = program
  let isDestroyed = false
  const begin = (where: string, cause?: unknown) => {
    if (!isDestroyed) return
    throw new TabringError(
      'graph.misuse',
      `${where}: the program was destroyed. Compile the function again, or destroy it later.`,
      { cause },
    )
  }
  /** A run whose buffers go while it is under way. */
  const end = (where: string) => (thrown: unknown) => {
    begin(where, thrown)
    throw thrown
  }
  program.run = async (inputs, scalars, ...others: unknown[]) => {
    begin('run')
    refuseExtra('run', [inputs, scalars, ...others], 2, 'only compileAccumulated has options here')
    refuseSurplus(types, inputs, scalars)
    return run.call(program, inputs, scalars).catch(end('run'))
  }
  program.shadow = async (scalars) => {
    begin('shadow')
    refuseSurplus({}, {}, scalars)
    return shadow.call(program, scalars).catch(end('shadow'))
  }
  program.check = (inputs, scalars) => {
    begin('check')
    refuseSurplus(types, inputs, scalars)
    check.call(program, inputs, scalars)
  }
  program.destroy = () => {
    if (!isDestroyed) destroy.call(program)
    isDestroyed = true
  }
  return program
}
