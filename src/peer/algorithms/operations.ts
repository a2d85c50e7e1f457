/** The index is the operation's number on the wire. */
export const operations = [
  'none',
  'reduceScatter',
  'allGather',
  'allReduce',
  'broadcast',
  'barrier',
  'allGatherBytes',
  'allGatherU32',
  'reduce',
  'gather',
  'scatter',
  'allToAll',
  'send',
] as const
export type Operation = Exclude<(typeof operations)[number], 'none'>

/** How a collective's bytes travel; the index is its number on the wire. All but `hierarchical` give the same bits. */
export const algorithms = ['ring', 'direct', 'oneShot', 'hierarchical'] as const
export type Algorithm = (typeof algorithms)[number]
