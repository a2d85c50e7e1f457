import { checkCase as checkCaseOn } from '../../src/check/check-case.ts'
import type { Case, Op, Variant } from '../../src/kernels/op.ts'
import { testRuntime } from './run-op.ts'

export { difference } from '../../src/kernels/difference.ts'
export { callOf, defaultSeed, drawInputs, drawTensor } from '../../src/kernels/draw.ts'

/** Everything that is wrong with one variant on one case on the test device, or undefined. */
export const checkCase = async <A>(
  op: Op<A>,
  variant: Variant<A>,
  test: Case<A>,
): Promise<string | undefined> => checkCaseOn(await testRuntime(), op, variant, test)
