import type { Lowering, Op, OpCall, Variant } from './op.ts'

/** `naive`, and a variant that is preferred wherever it can run. `lower`: true for the latter. */
export const naiveOr = <A>(
  name: string,
  when: NonNullable<Variant<A>['when']>,
  lower: (call: OpCall<A>, isFaster: boolean) => Lowering,
): Pick<Op<A>, 'variants' | 'preferred'> => ({
  variants: [
    { name: 'naive', lower: (call) => lower(call, false) },
    { name, when, lower: (call) => lower(call, true) },
  ],
  preferred: (call, limits) => (when(call, limits) ? name : 'naive'),
})
