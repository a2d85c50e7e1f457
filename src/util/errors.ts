import type { errorCodes } from './error-codes.ts'

export type ErrorCode = keyof typeof errorCodes

/** Base class of all Tabring errors: `code` is stable, `message` is for people. */
export class TabringError extends Error {
  static {
    // What is a TypeError can inherit from no other class, so that this one says itself that it counts.
    Object.defineProperty(TabringError, Symbol.hasInstance, {
      value(thrown: unknown): boolean {
        const isOwn = Function.prototype[Symbol.hasInstance].call(this, thrown)
        return isOwn || (this === TabringError && thrown instanceof ArgumentTypeError)
      },
    })
  }

  // Minified bundles rename classes: each says its own name.
  static override name = 'TabringError'
  readonly code: ErrorCode
  constructor(code: ErrorCode, message: string, options?: ErrorOptions) {
    super(message, options)
    this.name = new.target.name
    this.code = code
  }
}

export class ShapeError extends TabringError {
  static override name = 'ShapeError'
}
export class GpuError extends TabringError {
  static override name = 'GpuError'
}
export class PeerError extends TabringError {
  static override name = 'PeerError'
}
export class DataError extends TabringError {
  static override name = 'DataError'
}

/** What a run's end says in fields, because members write names and texts. */
export interface EndFacts {
  /** The ranks that are lost, removed, late or not linked. */
  readonly ranks?: readonly number[] | undefined
  /** An elastic run continues without this rank, which is linked `again` soon, or is `barred` for the rest of the run. */
  readonly leftOut?: 'again' | 'barred' | undefined
}

/** A PeerError with such fields; read them by `endFactsOf`. */
export class RunError extends PeerError {
  static override name = 'PeerError'
  constructor(
    code: ErrorCode,
    message: string,
    readonly facts: EndFacts,
    options?: ErrorOptions,
  ) {
    super(code, message, options)
  }
}

/** The fields of an error, or else of its cause. */
export function endFactsOf(thrown: unknown): EndFacts {
  if (thrown instanceof RunError) return thrown.facts
  return thrown instanceof Error && thrown.cause ? endFactsOf(thrown.cause) : {}
}

/** The error with which `spawn` rejects: a rank failed. */
export class ProcessException extends TabringError {
  static override name = 'ProcessException'
  constructor(
    /** The rank that failed. */
    readonly errorIndex: number,
    message: string,
    options?: ErrorOptions,
  ) {
    super('rank.failed', message, options)
  }
}
/** A rank threw: the message includes its stack, `cause` is the error with its own code. */
export class ProcessRaisedException extends ProcessException {
  static override name = 'ProcessRaisedException'
}
/** A rank's worker did not load, or exited without a result. */
export class ProcessExitedException extends ProcessException {
  static override name = 'ProcessExitedException'
}

/** An argument of the wrong type, which JavaScript does not catch: both a TypeError and a TabringError. */
export class ArgumentTypeError extends TypeError {
  readonly code: ErrorCode = 'config.invalid'
  override readonly name = 'ArgumentTypeError'
}

/** Returns whether an error is of one rank's device, worker, files or page, so that the others can train without it. */
export const isOfOneRank = (code: ErrorCode): boolean => /^(gpu|data|file|part|worker)\./.test(code)

/** Throws when an internal assumption does not hold; user mistakes use the classes above. */
export function invariant(condition: unknown, text: () => string): asserts condition {
  if (!condition)
    throw new Error(`internal: ${text()}. This is a defect in Tabring; please report it.`)
}

/** What was thrown, as an error. */
export const toError = (thrown: unknown): Error =>
  thrown instanceof Error ? thrown : new Error(String(thrown))

/** The error's text, whatever was thrown. */
export function messageOf(thrown: unknown): string {
  return thrown instanceof Error ? thrown.message : String(thrown)
}

/** The stack of what was thrown with those of its causes, as Node prints them; of causes in a circle each once. */
export function stackOf(thrown: unknown): string {
  const seen = new Set<Error>()
  const texts: string[] = []
  let next: unknown = thrown
  while (next instanceof Error && !seen.has(next)) {
    seen.add(next)
    const { name, message, stack = '', cause }: Error = next
    const words = [name, message].filter(Boolean).join(': ')
    // Firefox and Safari leave the words out of it: `load@file.js:1:1` where Chromium has `TypeError: words` and `    at load (file.js:1:1)`.
    const isWhole = /^ +at /m.test(stack) || stack.startsWith(words)
    texts.push(isWhole ? stack : `${words}\n${stack}`)
    next = cause
  }
  if (next instanceof Error) texts.push(`${next.name}: ${next.message} (see above)`)
  else if (next !== undefined || texts.length === 0) texts.push(`thrown: ${String(next)}`)
  return texts.join('\ncause: ')
}
