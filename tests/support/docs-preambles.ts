/**
 * What the `ts` blocks of a page take as given: names of earlier blocks of the page, or of the reader's own program.
 *
 * A block may also use every name that `tabring` exports without importing it. Everything else it must declare.
 */
export const preambles: Readonly<Record<string, string>> = {
  'docs/guides/checkpoints.md': `
    import type * as t from 'tabring'
    declare const model: t.Module, optimizer: t.Optimizer, scheduler: t.lrScheduler.LRScheduler, loader: t.DataLoader
    declare const parts: { model: t.Module; optimizer: t.Optimizer }
    declare const accuracy: number
    declare const log: (differences: readonly string[]) => void`,
  // TypeScript's DOM has no directory picker; Chromium has.
  'docs/guides/data.md': `
    import type * as t from 'tabring'
    declare function showDirectoryPicker(): Promise<FileSystemDirectoryHandle>
    declare const documents: readonly string[]
    declare const decode: (index: number) => { x: Float32Array; y: number }
    declare const mySamples: t.Dataset
    declare const model: t.Module, optimizer: t.Optimizer, scheduler: t.lrScheduler.LRScheduler, loader: t.DataLoader
    declare const step: t.StepProgram
    declare const epoch: number`,
  'docs/guides/mixed-precision.md': `
    import type * as t from 'tabring'
    declare const model: t.Linear, optimizer: t.Optimizer
    declare const types: { x: t.TensorType; y: t.TensorType }`,
  'docs/how-it-works/collectives.md': `
    import type * as t from 'tabring'
    declare const model: t.Linear`,
  'docs/reference/api.md': `
    import type * as t from 'tabring'
    declare const model: t.Linear, testSet: t.Dataset`,
  'docs/reference/distributed.md': `
    declare const rank: number, epochs: number, numbers: Float32Array`,
  'docs/reference/launching.md': `
    import type * as t from 'tabring'
    declare const model: t.Module, optimizer: t.Optimizer
    declare const loss: number`,
  'docs/reference/pytorch.md': `
    import type * as t from 'tabring'
    declare const model: t.Linear, ddp: t.DistributedDataParallel, optimizer: t.Optimizer
    declare const types: { x: t.TensorType; y: t.TensorType }
    declare const micro: { x: Float32Array<ArrayBuffer>; y: Int32Array<ArrayBuffer> }[]
    declare const url: string, worldSize: number, mine: object`,
}
