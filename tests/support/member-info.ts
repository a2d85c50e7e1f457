import type { MemberInfo } from '../../src/peer/room/messages.ts'

/** What a tab says about itself when it enters a room. */
export function infoOf(name: string, rest: Partial<MemberInfo> = {}): MemberInfo {
  return { name, adapter: null, hostTag: '', hidden: false, transport: 'auto', ...rest }
}
