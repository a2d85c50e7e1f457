import { calledAs } from '../../util/called-as.ts'
import { ownOf } from '../../util/own-of.ts'
import { refuseExtra, refusePythonNames } from '../../util/plain-callers.ts'
import { type HookHandle, registerHook } from '../trace/gradient-hooks.ts'
import { elementwise, type Operand, Tensor } from '../trace/tensor.ts'
import { gather, indexSelect, scatterAdd } from './index-ops.ts'
import { bmm, dot, outer } from './matmul.ts'
import { logsumexp, norm, std, type VarianceOptions, variance } from './reductions.ts'
import { chunk, cumsum, repeat, roll, split, tril, triu } from './shape.ts'

/**
 * Methods of tensors that are functions first: torch.Tensor has them, and they are built on what tensor.ts holds.
 *
 * Importing this file gives them to every tensor; whatever compiles a function does.
 */
const methods = {
  split,
  chunk,
  gather,
  scatterAdd,
  indexSelect,
  cumsum,
  tril,
  triu,
  repeat,
  roll,
  variance,
  std,
  logsumexp,
  norm,
  bmm,
  dot,
  outer,
  registerHook,
  where: (x: Tensor, condition: Tensor, other: Operand) =>
    elementwise('where', { condition, x, other }),
  view: (x: Tensor, ...shape: (number | readonly number[])[]) =>
    calledAs('view', 'reshape', () => x.reshape(shape.flat())),
}

declare module '../trace/tensor.ts' {
  interface Tensor {
    /** As the function `split`. */
    split(size: number | readonly number[], dim?: number): Tensor[]
    /** As the function `chunk`. */
    chunk(chunks: number, dim?: number): Tensor[]
    /** As the function `gather`. */
    gather(dim: number, index: Tensor): Tensor
    /** As the function `scatterAdd`. */
    scatterAdd(dim: number, index: Tensor, src: Tensor): Tensor
    /** As the function `indexSelect`. */
    indexSelect(dim: number, index: Tensor): Tensor
    /** As the function `cumsum`. */
    cumsum(dim: number): Tensor
    /** As the function `tril`. */
    tril(diagonal?: number): Tensor
    /** As the function `triu`. */
    triu(diagonal?: number): Tensor
    /** As the function `repeat`. */
    repeat(sizes: readonly number[]): Tensor
    /** As the function `roll`. */
    roll(shifts: number | readonly number[], dims?: number | readonly number[]): Tensor
    /** As the function `variance`. */
    variance(dim?: Axes, options?: VarianceOptions): Tensor
    /** As the function `std`. */
    std(dim?: Axes, options?: VarianceOptions): Tensor
    /** As the function `logsumexp`. */
    logsumexp(dim?: Axes, keepDim?: boolean): Tensor
    /** As the function `norm`. */
    norm(p?: number, dim?: Axes, keepDim?: boolean): Tensor
    /** As the function `bmm`. */
    bmm(other: Tensor): Tensor
    /** As the function `dot`. */
    dot(other: Tensor): Tensor
    /** As the function `outer`. */
    outer(other: Tensor): Tensor
    /**
     * Calls `hook` with the loss's gradient of this tensor when `backward` has completed it; the hook may return a replacement.
     *
     * It runs while the function is traced, once per `backward` and not per step: its computation becomes part of the program. Hooks run in
     * the order of registration, each on the result of the previous one. Hooks of parameters apply to all later traces.
     * errors: `graph.misuse` if this tensor requires no gradient; `shape.mismatch` for a gradient of the wrong shape.
     */
    registerHook(hook: (gradient: Tensor) => Tensor | undefined): HookHandle
    /** Returns this tensor where the condition is nonzero, otherwise `other`. */
    where(condition: Tensor, other: Operand): Tensor
    /** Same as `reshape`, with the sizes as arguments or as an array. */
    view(...shape: (number | readonly number[])[]): Tensor
  }
}

/** How many arguments those take that have optional ones, x included. */
const max: Readonly<Record<string, number>> = {
  split: 3,
  chunk: 3,
  tril: 2,
  triu: 2,
  variance: 3,
  std: 3,
  logsumexp: 3,
  norm: 4,
  view: Number.POSITIVE_INFINITY,
}

for (const [name, compute] of Object.entries(methods)) {
  const count = (ownOf(max, name) ?? compute.length) - 1
  const value = function (this: Tensor, ...others: unknown[]) {
    refuseExtra(`Tensor.${name}`, others, count)
    return (compute as (x: Tensor, ...others: unknown[]) => unknown)(this, ...others)
  }
  Object.defineProperty(Tensor.prototype, name, { value, writable: true, configurable: true })
}
refusePythonNames(Tensor)
