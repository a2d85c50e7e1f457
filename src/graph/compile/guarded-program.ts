import { TabringError } from '../../util/errors.ts'
import { inTurn, waitsFor } from '../../util/turns.ts'
import type { InputTypes } from '../plan/prepare.ts'
import {
  copyInputs,
  refuseSurplus,
  type StepProgram,
  storedInStep,
  withSettings,
} from '../plan/step-program.ts'

/**
 * Makes the program's methods work without it, as in `const { run } = program`, and refuse inputs that `types` does not have, and calls
 * after `destroy`. A run waits for states that are being read or written, and has the
 * settings that optimizers had when it was called.
 */
export function guarded<Program extends StepProgram>(program: Program, types: InputTypes): Program {
  const { run, shadow, check, destroy } = program
  const stored = storedInStep(program.prepared)
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
    refuseSurplus(types, inputs, scalars)
    const others = waitsFor('run', stored)
    if (others.length > 0) inputs = copyInputs(inputs, Object.keys(types))
    // A checkpoint brings settings.
    const isLoading = others.includes('load')
    const own = isLoading ? { ...scalars } : withSettings(program.prepared, scalars ?? {})
    return inTurn('run', stored, () => {
      begin('run')
      return run.call(program, inputs, own)
    })
  }
  program.shadow = async (scalars) => {
    begin('shadow')
    refuseSurplus({}, {}, scalars)
    return inTurn('run', stored, () => shadow.call(program, { ...scalars }))
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
