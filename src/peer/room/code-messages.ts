import * as v from 'valibot'

/**
 * Messages by which a tab gives the key of its room to who knows a short code, over separate connections that enter no room.
 *
 *   giver                        server                      newcomer
 *    giveCode ->                                                            the proof of the room's key, as to join it
 *    <- code                      the name of its code
 *                                <- useCode                                 the name, and the first of two boxes
 *    <- codeUsed                  from whom, and the box
 *    codeAnswer ->                codeAnswer ->                             twice; without a box where the password is wrong
 *
 * The server counts wrong passwords of an address, and the giver those of its code; short-code.ts says what the boxes hold.
 */

/** Letters and digits that nobody takes for others, read aloud or on a projector. */
export const codeAlphabet = '23456789ABCDEFGHJKMNPQRSTUVWXYZ'
/** Of a password. */
export const passwordChars = 4
/** Of a name: the shortest of which enough are free. */
export const nameChars = { min: 2, max: 4 }

/** Newcomers that one code answers at once. */
export const guestsPerCode = 64

export interface ShortCode {
  /** By which the server knows the tab that gives it. */
  readonly name: string
  /** Known to people alone. */
  readonly password: string
}

/** As people read it: in groups of three. */
export const formatCode = ({ name, password }: ShortCode): string =>
  (name + password).replace(/...(?=.)/g, '$& ')

/** What a person has typed, with any spaces and small letters; null where that is no code. */
export function parseCode(text: string): ShortCode | null {
  const code = text.toUpperCase().replace(/[\s-]/g, '')
  const isCode = [...code].every((one) => codeAlphabet.includes(one))
  const name = code.slice(0, -passwordChars)
  if (!isCode || name.length < nameChars.min || name.length > nameChars.max) return null
  return { name, password: code.slice(-passwordChars) }
}

export const codeNameSchema = v.pipe(
  v.string(),
  v.regex(new RegExp(`^[${codeAlphabet}]{${nameChars.min},${nameChars.max}}$`), 'a code’s name'),
)
export const codeBoxSchema = v.pipe(v.string(), v.regex(/^[\w-]{40,100}$/, 'a box of an exchange'))
/** Of one exchange: the server draws it. */
export const guestSchema = v.pipe(v.string(), v.regex(/^[0-9a-f]{16}$/, '16 hex digits'))

/** What the server says; the page reads it once a code is shown or typed, and not with the messages of a room. */
export const codeServerSchema = v.variant('type', [
  v.object({ type: v.literal('code'), name: codeNameSchema }),
  v.object({ type: v.literal('codeUsed'), guest: guestSchema, box: codeBoxSchema }),
  v.object({ type: v.literal('codeAnswer'), box: codeBoxSchema }),
])
export type CodeServerMessage = v.InferOutput<typeof codeServerSchema>
