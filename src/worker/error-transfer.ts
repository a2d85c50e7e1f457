import * as Comlink from 'comlink'
import {
  type EndFacts,
  type ErrorCode,
  endFactsOf,
  RunError,
  TabringError,
} from '../util/errors.ts'

interface ThrownWords {
  name: string
  code: ErrorCode | null
  facts: EndFacts
  message: string
  stack: string | undefined
}

/**
 * Makes errors keep their `code`, facts, name and stack across the worker boundary; call it on both sides before the first call.
 *
 * Comlink's own handler, whose test for thrown values is kept, carries message, name and stack only.
 */
export function keepErrorCodes(): void {
  const { canHandle } = Comlink.transferHandlers.get('throw')!
  Comlink.transferHandlers.set('throw', {
    canHandle,
    serialize: ({ value }: { value: unknown }) => [toWords(value), []],
    deserialize: (words: ThrownWords) => {
      throw fromWords(words)
    },
  } as Comlink.TransferHandler<{ value: unknown }, ThrownWords>)
}

function toWords(value: unknown): ThrownWords {
  if (value instanceof Error) {
    const code = value instanceof TabringError ? value.code : null
    const { name, message, stack } = value
    return { name, code, facts: endFactsOf(value), message, stack }
  }
  return { name: 'Error', code: null, facts: {}, message: String(value), stack: undefined }
}

function fromWords({ name, code, facts, message, stack }: ThrownWords): Error {
  const hasFacts = Object.keys(facts).length > 0
  const error = !code
    ? new Error(message)
    : hasFacts
      ? new RunError(code, message, facts)
      : new TabringError(code, message)
  error.name = name
  if (stack) error.stack = stack
  return error
}
