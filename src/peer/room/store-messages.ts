import * as v from 'valibot'

/**
 * Requests of a tab to its room's store, and the server's answers. Each call has a number, which its one answer carries.
 *
 *   tab                       server
 *    store (id, call) ->
 *     <- stored (id, waiting)   get and wait, where a key is not there yet: the answer follows
 *     <- stored (id, answer)    or error, with the code of the refusal and the call's id
 *
 * The server holds two kinds of values: what tabs have sealed, which it cannot read (sealed-value.ts), and counters.
 */

export const id = v.pipe(v.number(), v.safeInteger(), v.minValue(0))
export const integer = v.pipe(v.number(), v.safeInteger())
const base64Url = v.pipe(v.string(), v.regex(/^[\w-]+$/, 'base64url'))
export const tag = v.pipe(v.string(), v.regex(/^[\w-]{43}$/, '43 characters of base64url'))

export const sealedSchema = v.strictObject({ box: base64Url, tag })
export type SealedValue = v.InferOutput<typeof sealedSchema>

export const counterSchema = v.strictObject({ counter: integer })
export const valueSchema = v.union([sealedSchema, counterSchema])
/** Value that the server holds under a key. */
export type StoreValue = v.InferOutput<typeof valueSchema>

const answerSchema = v.variant('kind', [
  v.object({ kind: v.literal('waiting') }),
  /** set, wait; compareSet that has set; add, with the sum. */
  v.object({ kind: v.literal('done'), sum: v.optional(integer) }),
  /** get; compareSet that has not set (null: there is nothing); add to what is sealed, which was not done. */
  v.object({ kind: v.literal('value'), value: v.nullable(valueSchema) }),
  /** deleteKey (0 or 1), numKeys. */
  v.object({ kind: v.literal('count'), count: integer }),
  /** get, wait: the first of the keys that did not come, and how many did not. */
  v.object({ kind: v.literal('late'), missing: v.array(v.string()), count: integer }),
])
export type StoreAnswer = v.InferOutput<typeof answerSchema>

export const storedMessageSchema = v.object({ type: v.literal('stored'), id, answer: answerSchema })
export type StoredMessage = v.InferOutput<typeof storedMessageSchema>
