// order.rs - lists of pages that allocate in activate only, like order.hpp. Part of moorage.rs.

// Doubly linked lists over all pages. A page is in one list or in none. Each list is a ring through
// its own end node.
#[derive(Default)]
pub struct PageLists { next: Vec<u32>, previous: Vec<u32>, pages: u32 }
impl PageLists {
    // Call in activate; the lists are empty.
    pub fn assign(&mut self, pages: u32, lists: u32) {
        self.pages = pages;
        self.next = (0..pages + lists).collect();
        self.previous = self.next.clone();
    }
    pub fn clear(&mut self) {
        for node in 0..self.next.len() {
            self.next[node] = node as u32;
            self.previous[node] = node as u32;
        }
    }
    // The end node, between the last and the first page of a list.
    pub fn end(&self, list: u32) -> u32 { self.pages + list }
    pub fn first(&self, list: u32) -> u32 { self.next[self.end(list) as usize] }
    pub fn next(&self, node: u32) -> u32 { self.next[node as usize] }
    pub fn contains(&self, page: u32) -> bool { self.next[page as usize] != page }
    // Has no effect on a page that is in no list.
    pub fn unlink(&mut self, page: u32) {
        let (previous, next) = (self.previous[page as usize], self.next[page as usize]);
        self.next[previous as usize] = next;
        self.previous[next as usize] = previous;
        self.next[page as usize] = page;
        self.previous[page as usize] = page;
    }
    // Moves the page to the end of the list, from any list or none.
    pub fn append(&mut self, page: u32, list: u32) {
        self.unlink(page);
        let end = self.end(list);
        let last = self.previous[end as usize];
        self.previous[page as usize] = last;
        self.next[page as usize] = end;
        self.next[last as usize] = page;
        self.previous[end as usize] = page;
    }
}
