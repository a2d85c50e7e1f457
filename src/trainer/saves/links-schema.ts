import * as v from 'valibot'

/** Measurement of the ranks' links, as a checkpoint keeps it. */
export const linksSchema = v.object({
  choice: v.object({
    oneShotMaxBytes: v.number(),
    directMaxBytes: v.number(),
    hierarchicalMaxBytes: v.optional(v.number()),
    machines: v.optional(v.array(v.pipe(v.number(), v.safeInteger(), v.minValue(0)))),
  }),
  bytesPerMs: v.optional(v.number()),
})
