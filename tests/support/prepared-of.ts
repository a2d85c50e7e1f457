import type { Prepared } from '../../src/graph/plan/prepare.ts'
import type { StepProgram } from '../../src/graph/plan/step-program.ts'

/** What a program on one device was made of, with its plan. */
export function preparedOf({ prepared }: StepProgram): Prepared {
  if (!('plan' in prepared)) throw new Error('preparedOf: the program runs on several devices')
  return prepared as Prepared
}
