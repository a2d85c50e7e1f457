import * as v from 'valibot'
import { counterSchema, id, integer, sealedSchema, tag, valueSchema } from './store-messages.ts'

/** A tab's calls of its room's store, which the server alone reads: store-messages.ts has their answers. */

/** No max length here: the server's refusal says which length is too much. */
const key = v.string()
const timeoutMs = v.pipe(integer, v.minValue(0), v.maxValue(2 ** 31 - 1))
const callSchema = v.variant('op', [
  v.strictObject({ op: v.literal('set'), key, value: sealedSchema }),
  v.strictObject({ op: v.literal('get'), key, timeoutMs }),
  v.strictObject({ op: v.literal('add'), key, amount: integer }),
  v.strictObject({ op: v.literal('wait'), keys: v.array(key), timeoutMs }),
  v.strictObject({
    op: v.literal('compareSet'),
    key,
    /** Tag or counter that the value must have. */
    expected: v.union([v.strictObject({ tag }), counterSchema]),
    /** Or nothing may be there. */
    orAbsent: v.boolean(),
    desired: valueSchema,
  }),
  v.strictObject({ op: v.literal('deleteKey'), key }),
  v.strictObject({ op: v.literal('numKeys') }),
])
export type StoreCall = v.InferOutput<typeof callSchema>

export const storeMessageSchema = v.strictObject({ type: v.literal('store'), id, call: callSchema })
export type StoreMessage = v.InferOutput<typeof storeMessageSchema>
