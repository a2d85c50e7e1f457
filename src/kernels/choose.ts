import type { KernelLimits, Op, OpCall, OpKernels, Variant } from './op.ts'

/** JSON with the keys of every object in order, so that equal attrs make equal texts; infinities and NaN by name, not as null. */
const stable = (value: unknown): string =>
  JSON.stringify(value, (_, inner) => {
    if (typeof inner === 'number' && !Number.isFinite(inner)) return String(inner)
    return inner !== null && typeof inner === 'object' && !Array.isArray(inner)
      ? Object.fromEntries(Object.entries(inner).sort(([a], [b]) => (a < b ? -1 : 1)))
      : inner
  })

/** A text that names a call: op, input types and attrs. Equal calls have equal keys, in every run and every browser. */
export function variantKey<A>(op: OpKernels<A>, { inputs, attrs }: OpCall<A>): string {
  const types = inputs.map(({ shape, dtype }) => `${dtype}[${shape.join(',')}]`)
  return `${op.name} ${types.join(' ')} ${stable(attrs)}`
}

/** Variant names by `variantKey`: what a tuned run, or a run's record, fixes. */
export type VariantTable = Readonly<Record<string, string>>

const canRun = <A>(variant: Variant<A>, call: OpCall<A>, limits: KernelLimits): boolean =>
  variant.when?.(call, limits) ?? true

/** The variants that can run a call here, in the op's order, `naive` first. */
export const applicable = <A>(op: Op<A>, call: OpCall<A>, limits: KernelLimits): Variant<A>[] =>
  op.variants.filter((variant) => canRun(variant, call, limits))

/**
 * Returns the variant that a call uses: the table's entry, else the op's own preference, else the first that can run
 * and is not naive, else naive.
 *
 * An entry that cannot run here (the record of another adapter) is passed over. `useNaive` is the mode without any of this.
 */
export function chooseVariant<A>(
  op: OpKernels<A>,
  call: OpCall<A>,
  limits: KernelLimits,
  table?: VariantTable,
  useNaive = false,
): Variant<A> {
  const [naive, ...others] = op.variants
  if (useNaive || others.length === 0) return naive
  const byName = (name: string | undefined) =>
    op.variants.find((variant) => variant.name === name && canRun(variant, call, limits))
  return (
    (table && byName(table[variantKey(op, call)])) ??
    byName(op.preferred?.(call, limits)) ??
    // In WebAssembly invocations that wait for each other take turns; those of the plain variant need not.
    (limits.isWasm ? naive : others.find((variant) => canRun(variant, call, limits))) ??
    naive
  )
}
