/** What is done with stored tensors; `save` and `load` are of several reads or writes, which are called within them. */
export type TurnKind = 'run' | 'read' | 'write' | 'save' | 'load'

/** A key for the method that lists what a model, an optimizer or an average reads and writes. */
export const storedIn: unique symbol = Symbol('stored tensors')

/** What has a state of stored tensors, or of pools. */
export interface Storing {
  [storedIn](): Iterable<object>
}

interface Turn {
  readonly kind: TurnKind
  readonly stored: ReadonlySet<object>
  /** What it waits for; empty once it has begun. */
  after: readonly Turn[]
  readonly ended: Promise<unknown>
}

/** In the order of the calls. */
const underWay = new Set<Turn>()
let isPart = false

/** Returns what `call` gives, which needs no turn: it is a part of what the caller does in its own. */
export function asPart<T>(call: () => T): T {
  const outer = isPart
  isPart = true
  try {
    return call()
  } finally {
    isPart = outer
  }
}

/** Whether what is called during `outer` may be a part of it: where a class of the user's calls it late, nothing else shows it. */
const mayBePart = (kind: TurnKind, outer: TurnKind): boolean =>
  (outer === 'save' && kind === 'read') ||
  (outer === 'load' && (kind === 'read' || kind === 'write'))

const sharesAny = (a: ReadonlySet<object>, b: ReadonlySet<object>): boolean =>
  a.size > b.size ? sharesAny(b, a) : [...a].some((one) => b.has(one))

function earlier(kind: TurnKind, stored: ReadonlySet<object>): Turn[] {
  if (isPart) return []
  const others = [...underWay].filter(
    (other) =>
      // Programs keep their own runs in order, once they have begun.
      !(kind === 'run' && other.kind === 'run' && other.after.length === 0) &&
      sharesAny(other.stored, stored),
  )
  const outer = new Set(others.filter((other) => mayBePart(kind, other.kind)))
  return others.filter((other) => !outer.has(other) && !other.after.some((one) => outer.has(one)))
}

/** What has been called earlier with these tensors and has to end first. */
export const waitsFor = (kind: TurnKind, stored: ReadonlySet<object>): TurnKind[] =>
  earlier(kind, stored).map((other) => other.kind)

/**
 * Does `work` when what was called earlier with these tensors has ended, and at once where there is nothing: so that a state is of one
 * step, and of which one the order of the calls decides, awaited or not. Runs do not wait for runs.
 */
export function inTurn<T>(
  kind: TurnKind,
  stored: ReadonlySet<object>,
  work: () => Promise<T>,
): Promise<T> {
  if (isPart) return work()
  let end!: () => void
  const ended = new Promise<void>((resolve) => {
    end = resolve
  })
  const turn: Turn = { kind, stored, after: earlier(kind, stored), ended }
  const waiting = turn.after.map((one) => one.ended)
  underWay.add(turn)
  const done =
    waiting.length === 0
      ? work()
      : Promise.all(waiting).then(() => {
          turn.after = []
          return work()
        })
  const leave = () => {
    underWay.delete(turn)
    end()
  }
  done.then(leave, leave)
  return done
}

/** As `inTurn`, of work that ends at once and cannot fail. */
export function writeInTurn(stored: ReadonlySet<object>, work: () => void): void {
  if (waitsFor('write', stored).length > 0) inTurn('write', stored, async () => work())
  else work()
}
