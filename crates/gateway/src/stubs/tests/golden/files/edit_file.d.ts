/**
 * Make line-based edits to a text file.
 *
 * Each edit replaces exact line sequences.
 *
 * By the server's own words: may destroy.
 *
 * @example
 * await files.edit_file({ path: "...", edits: [{ oldText: "...", newText: "..." }] })
 */
export declare function edit_file(args: {
  path: string;
  edits: Array<{
    /** Text to search for - must match exactly */
    oldText: string;
    /** Text to replace with */
    newText: string;
  }>;
  /** Preview changes using git-style diff format (default false) */
  dryRun?: boolean;
}): Promise<{
  content: string;
}>;
