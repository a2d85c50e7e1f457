import { variantKey } from '../../kernels/choose.ts'
import { bytesOf } from '../../util/shape.ts'
import type { Prepared } from '../plan/prepare.ts'
import { formatTypes } from '../trace/format-call.ts'

/** An op of a program with what its kernels do in one run. */
export interface KernelRow {
  readonly op: string
  readonly variant: string
  /** Types of its inputs. */
  readonly dims: string
  /** Dispatches [start, end). */
  readonly start: number
  readonly end: number
  /** Undefined where the op quotes none. */
  readonly flops: number | undefined
  /** Each input and output once: the least that moves. */
  readonly bytes: number
}

/** Each op of a program, in order of execution. */
export const kernelRows = ({ calls, chosen, plan }: Prepared): KernelRow[] =>
  calls.map(({ op, call }, i) => ({
    op: op.name,
    variant: chosen[variantKey(op, call)],
    dims: formatTypes(call.inputs),
    start: i === 0 ? 0 : plan.endOfNode[i - 1],
    end: plan.endOfNode[i],
    flops: op.flops?.(call),
    bytes: [...call.inputs, ...call.outputs].reduce((sum, type) => sum + bytesOf(type), 0),
  }))

const rate = (amount: number | undefined, ms: number): string =>
  amount === undefined || ms <= 0 ? '-' : (amount / ms / 1e6).toFixed(2)

/** Columns in a fixed width, for a console; the last one as it is. */
const columns = (rows: readonly (readonly string[])[]): string[] => {
  const widths = rows[0].map((_, at) => Math.max(...rows.map((row) => row[at].length)))
  return rows.map((row) =>
    row.map((text, at) => (at === row.length - 1 ? text : text.padStart(widths[at]))).join('  '),
  )
}

/** The table of a program's kernels; `ms` by dispatch. */
export function formatKernels(rows: readonly KernelRow[], ms: ArrayLike<number>): string {
  const timed = rows.filter(({ start, end }) => end > start)
  const lines = timed.map((row) => {
    let own = 0
    for (let i = row.start; i < row.end; i++) own += ms[i]
    const dispatches = row.end - row.start
    const name = `${row.op} ${row.variant}${dispatches > 1 ? ` x${dispatches}` : ''}`
    return [own.toFixed(3), rate(row.flops, own), rate(row.bytes, own), `${name}  ${row.dims}`]
  })
  return columns([['ms', 'GFLOP/s', 'GB/s', 'kernel'], ...lines]).join('\n')
}

/** All ops together, for the line of totals. */
export function formatTotals(rows: readonly KernelRow[], ms: number): string {
  const flops = rows.reduce((sum, row) => sum + (row.flops ?? 0), 0)
  const bytes = rows.reduce((sum, row) => sum + row.bytes, 0)
  const dispatches = rows.reduce((sum, { start, end }) => sum + end - start, 0)
  return `${dispatches} dispatches, ${ms.toFixed(3)} ms, ${rate(flops, ms)} GFLOP/s, ${rate(bytes, ms)} GB/s`
}
