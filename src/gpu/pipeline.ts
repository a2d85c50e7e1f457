import { loadPart } from '../util/load-part.ts'
import { log } from '../util/log.ts'
import type { Gpu } from './device.ts'
import { computeStage } from './usage.ts'

/** What the pipeline cache needs of a dispatch. */
export interface ShaderSource {
  readonly label: string
  readonly wgsl: string
  readonly bindings: readonly { readonly access: 'read' | 'write' | 'update' }[]
}

export interface CompiledPipeline {
  readonly pipeline: GPUComputePipeline
  readonly layout: GPUBindGroupLayout
}

/** Pipelines that are kept though nothing uses them, for a program that is built again. On `cpu` each takes some 40 KB. */
const keptPipelines = 64

/** Compute pipelines by shader text: a text that is in use compiles once per device, all requested together compile in parallel. */
export class PipelineCache {
  readonly #gpu: Gpu
  readonly #compiled = new Map<string, WeakRef<Promise<CompiledPipeline>>>()
  readonly #collected = new FinalizationRegistry<string>((wgsl) => {
    if (!this.#compiled.get(wgsl)?.deref()) this.#compiled.delete(wgsl)
  })
  /** As long as a pipeline is in use, its promise can be found. */
  readonly #promises = new WeakMap<GPUComputePipeline, Promise<CompiledPipeline>>()
  /** In the order of their last use. */
  readonly #newest = new Set<Promise<CompiledPipeline>>()
  readonly #layouts = new Map<string, GPUBindGroupLayout>()

  constructor(gpu: Gpu) {
    this.#gpu = gpu
  }

  /** errors: `gpu.compile`, with the compiler's messages and line numbers. */
  get(source: ShaderSource): Promise<CompiledPipeline> {
    const compiled = this.#compiled.get(source.wgsl)?.deref() ?? this.#add(source)
    this.#newest.delete(compiled)
    this.#newest.add(compiled)
    if (this.#newest.size > keptPipelines) {
      const [oldest] = this.#newest
      this.#newest.delete(oldest)
    }
    return compiled
  }

  #add(source: ShaderSource): Promise<CompiledPipeline> {
    const compiled = this.#compile(source)
    compiled.then(
      ({ pipeline }) => this.#promises.set(pipeline, compiled),
      () => undefined,
    )
    this.#compiled.set(source.wgsl, new WeakRef(compiled))
    this.#collected.register(compiled, source.wgsl)
    return compiled
  }

  async #compile({ label, wgsl, bindings }: ShaderSource): Promise<CompiledPipeline> {
    const { device, counters } = this.#gpu
    const layout = this.#layout(bindings.map(({ access }) => access !== 'read'))
    log(4, `shader "${label}"`, () => `\n${wgsl}`)
    const module = device.createShaderModule({ label, code: wgsl })
    counters.pipelines++
    try {
      const pipeline = await device.createComputePipelineAsync({
        label,
        layout: device.createPipelineLayout({ bindGroupLayouts: [layout] }),
        compute: { module, entryPoint: 'main' },
      })
      return { pipeline, layout }
    } catch (cause) {
      const { compileError } = await loadPart('shader errors', () => import('./compile-error.ts'))
      throw await compileError({ label, wgsl, module, cause })
    }
  }

  #layout(writable: readonly boolean[]): GPUBindGroupLayout {
    const key = writable.map(Number).join('')
    let layout = this.#layouts.get(key)
    if (!layout) {
      layout = this.#gpu.device.createBindGroupLayout({
        label: `bindings ${key}`,
        entries: writable.map((isWritable, binding) => ({
          binding,
          visibility: computeStage,
          buffer: { type: isWritable ? 'storage' : 'read-only-storage' },
        })),
      })
      this.#layouts.set(key, layout)
    }
    return layout
  }
}
