import * as Comlink from 'comlink'
import { type ErrorCode, errorCodes, TabringError } from '../util/errors.ts'

interface ThrownWords {
  name: string
  code: ErrorCode | null
  message: string
  stack: string | undefined
}

/**
 * Makes errors keep their `code`, name and stack across the worker boundary; call it on both sides before the first call.
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
    const code =
      'code' in value && String(value.code) in errorCodes ? (value.code as ErrorCode) : null
    return { name: value.name, code, message: value.message, stack: value.stack }
  }
  return { name: 'Error', code: null, message: String(value), stack: undefined }
}

function fromWords({ name, code, message, stack }: ThrownWords): Error {
  const error = code ? new TabringError(code, message) : new Error(message)
  error.name = name
  if (stack) error.stack = stack
  return error
}
