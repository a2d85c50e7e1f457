import type { Tensor } from '../graph/trace/tensor.ts'
import { TabringError } from '../util/errors.ts'
import { Module, ModuleSequence } from './module.ts'

/** errors: `graph.misuse` always: a list or dict says nothing about the order of calls. */
function refuseForward(module: Module): never {
  throw new TabringError(
    'graph.misuse',
    `${module.constructor.name}: expected calls of the modules in it, got one of its own forward. Call them one by one, or use a Sequential.`,
  )
}

/** Modules in a list, each part of the model; their keys are their positions, as in torch.nn.ModuleList. */
export class ModuleList<M extends Module = Module> extends ModuleSequence<M> {
  constructor(modules: Iterable<M> = []) {
    super(modules)
  }

  /** errors: `graph.misuse`. */
  forward(_x: Tensor): Tensor {
    return refuseForward(this)
  }
}

/** Modules by name, each part of the model; their keys are their names as they are, as in torch.nn.ModuleDict. */
export class ModuleDict<M extends Module = Module> extends Module {
  readonly #modules = new Map<string, M>()

  /** `modules`: an object, or pairs of name and module. */
  constructor(modules: Readonly<Record<string, M>> | Iterable<readonly [string, M]> = {}) {
    super()
    this.update(modules)
  }

  get size(): number {
    return this.#modules.size
  }

  has(name: string): boolean {
    return this.#modules.has(name)
  }

  /** errors: `graph.misuse` for a name that is not there. */
  get(name: string): M {
    const module = this.#modules.get(name)
    if (module) return module
    throw new TabringError(
      'graph.misuse',
      `ModuleDict: expected one of the names ${[...this.keys()].join(', ') || '(none)'}, got "${name}". Check it with has().`,
    )
  }

  /** Puts a module under a name, which keeps its place where it is there already. errors: `graph.misuse` for a name that is empty or has a dot. */
  set(name: string, module: M): this {
    if (name === '' || name.includes('.')) {
      throw new TabringError(
        'graph.misuse',
        `ModuleDict: expected a name without dots, got "${name}". Keys of the state dict are names joined by dots.`,
      )
    }
    this.#modules.set(name, module)
    return this
  }

  /** Adds modules, in the place of those with the same names. */
  update(modules: Readonly<Record<string, M>> | Iterable<readonly [string, M]>): void {
    const pairs = Symbol.iterator in modules ? modules : Object.entries(modules)
    for (const [name, module] of pairs) this.set(name, module)
  }

  /** Takes a module out and returns it. errors: as `get`. */
  pop(name: string): M {
    const module = this.get(name)
    this.#modules.delete(name)
    return module
  }

  clear(): void {
    this.#modules.clear()
  }

  keys(): IterableIterator<string> {
    return this.#modules.keys()
  }

  values(): IterableIterator<M> {
    return this.#modules.values()
  }

  entries(): IterableIterator<[string, M]> {
    return this.#modules.entries()
  }

  /** errors: `graph.misuse`. */
  forward(_x: Tensor): Tensor {
    return refuseForward(this)
  }

  override children(): [string, M][] {
    return [...this.#modules]
  }
}
