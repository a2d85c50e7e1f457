import type { Runtime } from '../graph/memory/runtime.ts'
import { applicable } from '../kernels/choose.ts'
import { callOf } from '../kernels/draw.ts'
import type { Op } from '../kernels/op.ts'
import { messageOf } from '../util/errors.ts'
import { checkCase } from './check-case.ts'

/** What an op's cases came to on one device. */
export interface OpResult {
  readonly op: string
  /** Variants that ran, in the op's order; none for a view, which has no kernel. */
  readonly variants: readonly string[]
  readonly checked: number
  /** Everything that is wrong, one text a variant and case. */
  readonly failures: readonly string[]
}

/** Calls of a case by a variant that can run it here. */
const checksOf = (op: Op, { limits }: Runtime) =>
  op.isView
    ? []
    : op.cases.flatMap((test) =>
        applicable(op, callOf(op, test), limits).map((variant) => ({ variant, test })),
      )

/** How many checks `selfTest` makes. */
export const countChecks = (runtime: Runtime, ops: readonly Op[]): number =>
  ops.reduce((sum, op) => sum + checksOf(op, runtime).length, 0)

export interface SelfTestOptions {
  readonly signal?: AbortSignal
  /** Before each check. */
  readonly onCheck?: (op: string, variant: string, test: string) => void
  /** After each op; the last one of an aborted test is not reported. */
  readonly onResult: (result: OpResult) => void
}

/**
 * Runs every variant of every op on every one of its cases, as `checkCase` does: against the reference, with guards, twice.
 *
 * errors: the signal's reason; the device's first error, after which results mean nothing.
 */
export async function selfTest(
  runtime: Runtime,
  ops: readonly Op[],
  { signal, onCheck, onResult }: SelfTestOptions,
): Promise<void> {
  for (const op of ops) {
    const checks = checksOf(op, runtime)
    const ran = new Set<string>()
    const failures: string[] = []
    for (const { variant, test } of checks) {
      signal?.throwIfAborted()
      onCheck?.(op.name, variant.name, test.name)
      ran.add(variant.name)
      try {
        const problem = await checkCase(runtime, op, variant, test)
        if (problem) failures.push(problem)
      } catch (thrown) {
        runtime.gpu.check()
        failures.push(
          `${op.name}, variant ${variant.name}, case "${test.name}": ${messageOf(thrown)}`,
        )
      }
    }
    const variants = op.variants.map(({ name }) => name).filter((name) => ran.has(name))
    onResult({ op: op.name, variants, checked: checks.length, failures })
  }
}
