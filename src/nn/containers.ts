import type { Tensor } from '../graph/trace/tensor.ts'
import { clipped } from '../util/clipped.ts'
import { TabringError } from '../util/errors.ts'
import { isIterable, isRecord, isText, quoted } from '../util/kind-of.ts'
import { checkList } from '../util/options.ts'
import { countArguments } from '../util/plain-callers.ts'
import { checkModule, Module, ModuleSequence } from './module.ts'
import { checkName } from './module-names.ts'

/** errors: `graph.misuse` always: a list or dict says nothing about the order of calls. */
function refuseForward(module: Module): never {
  throw new TabringError(
    'graph.misuse',
    `${module.constructor.name}: has no forward. Call its modules one by one, or use a Sequential.`,
  )
}

/** A list of modules, like torch.nn.ModuleList; the state-dict key of each is its index. */
export class ModuleList<M extends Module = Module> extends ModuleSequence<M> {
  constructor(modules: Iterable<M> = []) {
    super(modules)
  }

  /** Throws: a ModuleList has no forward. errors: `graph.misuse`. */
  forward(_x: Tensor): Tensor {
    return refuseForward(this)
  }
}

/** Modules by name, like torch.nn.ModuleDict; the state-dict key of each is its name, unchanged. */
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

  /** Returns the module with this name. errors: `graph.misuse` for an unknown name. */
  get(name: string): M {
    const module = this.#modules.get(name)
    if (module) return module
    throw new TabringError(
      'graph.misuse',
      `ModuleDict: expected one of the names ${clipped([...this.keys()].join(', ')) || '(none)'}, got ${quoted(name)}. Check with has() first.`,
    )
  }

  /** Sets the module with this name; an existing name keeps its place. errors: `graph.misuse` for a name that is empty or has a dot. */
  set(name: string, module: M): this {
    checkName('ModuleDict', name)
    checkModule('ModuleDict', module)
    this.#modules.set(name, module)
    return this
  }

  /** Adds modules, replacing those with the same names. */
  update(modules: Readonly<Record<string, M>> | Iterable<readonly [string, M]>): void {
    const pairs: unknown = isIterable(modules) ? [...modules] : modules
    const isPair = (pair: unknown) => Array.isArray(pair) && isText(pair[0])
    const entries = isRecord(pairs)
      ? Object.entries<M>(pairs as Record<string, M>)
      : (pairs as [string, M][])
    checkList('ModuleDict', 'modules', entries, isPair, 'pairs of name and module')
    for (const [name, module] of entries) this.set(name, module)
  }

  /** Removes a module and returns it. errors: as `get`. */
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

  /** Throws: a ModuleDict has no forward. errors: `graph.misuse`. */
  forward(_x: Tensor): Tensor {
    return refuseForward(this)
  }

  override children(): [string, M][] {
    this.refuseOthers([...this.#modules.values()])
    return [...this.#modules]
  }

  protected override get childCount(): number {
    return this.size
  }

  protected override keeps(child: M): () => boolean {
    const found = this.children().find(([, module]) => module === child)
    return () => this.#modules.get(found?.[0] ?? '') === child
  }
}

for (const list of [ModuleList, ModuleDict]) countArguments(list, { update: 1 })
