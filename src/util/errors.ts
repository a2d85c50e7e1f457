/**
 * Tabring's errors: a few classes, one stable `code` each from the list below; and one for arguments of a wrong type, which is a TypeError
 * besides.
 *
 * A message reads `<where>: <expected>, got <actual>. <what to do>`. docs/reference/errors.md is made of this list (`npm run docs`).
 */
export const errorCodes = {
  // shapes and graphs
  'shape.mismatch': {
    cause: 'Two tensors disagree about a dimension.',
    remedy: 'Print both shapes; reshape, transpose or change the layer that the message names.',
  },
  'shape.unsupported': {
    cause: 'An op was asked for a shape, dtype or option it does not have.',
    remedy: 'Convert the tensor, or choose an option that the message allows.',
  },
  'graph.misuse': {
    cause: 'A tensor, module or optimizer was used outside the place where it is valid.',
    remedy: 'Move the call to where the message says, mostly into the function given to `compile`.',
  },
  // the device
  'gpu.unavailable': {
    cause: 'The browser offers no WebGPU adapter, or the page is not a secure context.',
    remedy:
      'Open the page over https or localhost in a browser with WebGPU, or compile for the device `cpu`.',
  },
  'device.mismatch': {
    cause: 'A tensor is on another device than the program that reads it.',
    remedy:
      'Move the tensor or the program with `.to()` or the `device` option, so that both are on one device.',
  },
  'gpu.limit': {
    cause: 'A buffer, kernel or program needs more than the adapter allows or has free.',
    remedy: 'Use a smaller model or batch, `checkpoint`, or another adapter.',
  },
  'gpu.lost': {
    cause: 'The device was lost.',
    remedy:
      'Open the device again and go on from the last kept state; the built-in training does so by itself, on all ranks.',
  },
  'gpu.compile': {
    cause: 'A shader or pipeline did not compile.',
    remedy: 'Report it with the text of the shader; `isNaive: true` may go around it.',
  },
  'gpu.validation': {
    cause: 'The device rejected a command.',
    remedy: 'Results after it are not valid: stop the run and report it.',
  },
  // peers and signaling
  'peer.lost': {
    cause: 'A rank left, crashed or stopped answering.',
    remedy: 'Members stay in the room: start the run again, from a checkpoint where there is one.',
  },
  'peer.timeout': {
    cause:
      'A rank did not send what a collective waited for, or set the key that a store waited for, in time.',
    remedy:
      'Keep that tab in the foreground or give ranks more time; slow networks need longer deadlines.',
  },
  'peer.protocol': {
    cause: 'A frame or message broke the protocol.',
    remedy: 'Load the same version of the page on every rank.',
  },
  'peer.aborted': {
    cause: 'Another rank aborted the epoch.',
    remedy: 'Read the error of the rank that aborted.',
  },
  'peer.unreachable': {
    cause: 'No connection to a rank could be made.',
    remedy: 'Check firewalls between the two machines, or put the tabs into one network.',
  },
  'peer.mismatch': {
    cause: 'Ranks disagree about the collective they are in.',
    remedy: 'Run the same program with the same settings on every rank.',
  },
  'signal.refused': {
    cause: 'The signaling server refused a request.',
    remedy:
      "Read the reason in the message: a wrong secret, a full room, a run that is under way, or a limit of the room's store.",
  },
  'signal.lost': {
    cause: 'The connection to the signaling server ended.',
    remedy: 'Check that the server runs, and join again.',
  },
  'train.diverged': {
    cause: 'Replicas hold different parameters.',
    remedy: 'Start again from a checkpoint and report it, with the adapters of all ranks.',
  },
  'train.nan': {
    cause: 'The loss, or the norm of gradients, is not a finite number.',
    remedy:
      'Lower the learning rate or clip gradients; `compile(..., { detectAnomaly: true })` names the first op that gave it, before it changes anything.',
  },
  'worker.dead': {
    cause: 'The compute worker ended.',
    remedy: 'Reload the tab; the message holds what the worker said last.',
  },
  'part.missing': {
    cause: 'A part of the page that is loaded when it is needed did not come.',
    remedy: 'Check that the server runs, and reload the page: the server may have a newer version.',
  },
  'rank.failed': {
    cause: 'A worker that `spawn` started threw, or ended without a word.',
    remedy: 'Read the message: it has the first rank that failed, with its stack.',
  },
  // data, files and settings
  'data.malformed': {
    cause: 'A data file does not follow its format.',
    remedy: 'Check that the file is of the format that the message names, and whole.',
  },
  'data.missing': {
    cause: 'A data file is not there.',
    remedy: 'Check path or address, and that the server shares that folder.',
  },
  'data.checksum': {
    cause: 'A file is not the one that was asked for.',
    remedy: 'Download it again; if it still differs, the source has changed.',
  },
  'data.interrupted': {
    cause: 'A download ended before the whole file had come.',
    remedy: 'Call `download` again: it goes on where it ended.',
  },
  'config.invalid': {
    cause: 'A setting, option or index is outside what it may be, or is misspelt.',
    remedy: 'Give a name and a value that the message allows.',
  },
  'file.unwritable': {
    cause: 'A file could not be written.',
    remedy: 'Check folder, permissions and free space.',
  },
  'browser.missing': {
    cause: 'No browser was found.',
    remedy: 'Install Chrome or Chromium, or name one with `TABRING_BROWSER`.',
  },
} as const

export type ErrorCode = keyof typeof errorCodes

/** The common base: `code` is stable, `message` is for people. */
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

  readonly code: ErrorCode
  constructor(code: ErrorCode, message: string, options?: ErrorOptions) {
    super(message, options)
    this.name = new.target.name
    this.code = code
  }
}

export class ShapeError extends TabringError {}
export class GpuError extends TabringError {}
export class PeerError extends TabringError {}
export class DataError extends TabringError {}

/** What `spawn` rejects with: a rank that failed. */
export class ProcessException extends TabringError {
  constructor(
    /** The rank. */
    readonly errorIndex: number,
    message: string,
    options?: ErrorOptions,
  ) {
    super('rank.failed', message, options)
  }
}
/** A rank threw: the message has its stack, `cause` the error with its own code. */
export class ProcessRaisedException extends ProcessException {}
/** A rank's worker did not load, or ended without a word. */
export class ProcessExitedException extends ProcessException {}

/** An argument of another type than the signature has, which JavaScript lets through: a TypeError that is a TabringError too. */
export class ArgumentTypeError extends TypeError {
  readonly code: ErrorCode = 'config.invalid'
  override readonly name = 'ArgumentTypeError'
}

/** Throws when an internal assumption does not hold; user mistakes use the classes above. */
export function invariant(condition: unknown, text: () => string): asserts condition {
  if (!condition) throw new Error(`internal: ${text()}. This is a defect in Tabring.`)
}

/** The error's text, whatever was thrown. */
export function messageOf(thrown: unknown): string {
  return thrown instanceof Error ? thrown.message : String(thrown)
}

/** An error's stack with those of its causes, as Node prints them; of causes in a circle each once. */
export function stackOf(thrown: Error): string {
  const told = new Set<Error>()
  const texts: string[] = []
  let next: unknown = thrown
  while (next instanceof Error && !told.has(next)) {
    told.add(next)
    const { name, message, stack = '', cause }: Error = next
    // Firefox and Safari leave the words out of it.
    texts.push(stack.includes(message) ? stack : `${name}: ${message}\n${stack}`)
    next = cause
  }
  if (next instanceof Error) texts.push(`${next.name}: ${next.message} (see above)`)
  return texts.join('\ncause: ')
}
